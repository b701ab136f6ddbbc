"""Whether a mean of squares can have grown out of another one: of it no more is forgotten than decay takes."""

from typing import Final

from ckptcheck.state.tensor import TensorRef

_MOST_BYTES: Final = 64 << 10
"""How much of each tensor is read."""
_ROUNDED: Final = 1e-3
"""How much less, in parts, rounding may have left over the updates."""


def can_follow(earlier: TensorRef | None, later: TensorRef | None, kept: float) -> bool | None:
    """Whether `later` has at least the part `kept` of each element of `earlier`: v <- beta v + (1 - beta) g g.

    None where they are not two float32 tensors of one shape. Raises DamagedCheckpointError where bytes are missing.
    """
    if earlier is None or later is None or earlier.spec != later.spec or earlier.spec.dtype != "float32":
        return None
    import numpy as np

    sides = []
    for one in (earlier, later):
        block = bytearray(min(_MOST_BYTES, one.spec.nbytes))
        one.read_into(0, memoryview(block))
        sides.append(np.frombuffer(block, dtype="<f4"))
    before, after = sides
    return bool(np.all(after >= before * np.float32(kept * (1 - _ROUNDED))))

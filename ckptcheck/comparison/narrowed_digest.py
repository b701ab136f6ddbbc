"""The digest that a tensor of a file has once its values went through a narrower dtype and back."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128

from ckptcheck.comparison.decoding import bits_in, decode
from ckptcheck.comparison.rounding import NARROW, Singles, round_to
from ckptcheck.state.digest import XXH3_128, Digest
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorRef, TensorSpec

_CHUNK_BYTES: Final = 1 << 22
_WIDE: Final = {"float64": "<f8", "float32": "<f4", "float16": "<f2"}


def narrower_than(spec: TensorSpec) -> tuple[str, ...]:
    """The dtypes that values of this one may have been rounded through, the widest first; none for 8 bits."""
    if spec.dtype not in (*_WIDE, "bfloat16"):
        return ()
    width = ITEMSIZE_BYTES[spec.dtype]
    return tuple(name for name in reversed(NARROW) if ITEMSIZE_BYTES[name] < width)


def narrowed_digest(ref: TensorRef, dtype: str) -> Digest | None:
    """The XXH3 digest of the tensor's values rounded to `dtype`, in its own dtype; `dtype` is of `narrower_than`.

    None where all are one number then: what begins anew is often all zeros or ones. Reads the tensor once, in pieces.
    Raises DamagedCheckpointError where its bytes are missing.
    """
    hasher = xxh3_128()
    ends: list[float] = []
    for values in _pieces(ref):
        with np.errstate(all="ignore"):
            rounded = round_to(values, dtype)
            ends += [float(rounded.min()), float(rounded.max())]
            hasher.update(_bytes_of(rounded, ref.spec.dtype))
    return Digest(XXH3_128, hasher.digest()) if len(set(ends)) > 1 else None


def _pieces(ref: TensorRef) -> Iterator[Singles]:
    """The tensor's values as float32, as torch casts them on the way to anything narrower."""
    spec = ref.spec
    buffer = memoryview(bytearray(min(_CHUNK_BYTES, spec.nbytes)))
    for start in range(0, spec.nbytes, _CHUNK_BYTES):
        part = buffer[: min(_CHUNK_BYTES, spec.nbytes - start)]
        ref.read_into(start, part)
        bits = bits_in(part, spec.dtype)
        with np.errstate(all="ignore"):
            yield decode(bits, spec.dtype, np.empty(len(bits))).astype(np.float32)


def _bytes_of(values: Singles, dtype: str) -> bytes:
    if dtype == "bfloat16":
        high: NDArray[Any] = values.view(np.uint32) >> 16  # what went through a narrower dtype has no lower bits
        return high.astype("<u2").tobytes()
    return values.astype(_WIDE[dtype]).tobytes()

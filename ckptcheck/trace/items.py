"""What a trace has rows for: an item is one thing that is sampled again and again, a moment is when."""

from typing import Final, NamedTuple

from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Scalar

BUILT: Final = "built"
"""Moment: the whole training state of a resumed run before anything is loaded."""
LOAD: Final = "load"
"""Moment: the whole training state when the run begins; after a load, straight after it."""
GIVEN: Final = "given"
"""Moment: what `load_state_dict` was given in a script; at step 0, and later with notes of further loads only."""
OVERWRITTEN: Final = "overwritten"
"""Moment: what the objects that a script loads held before, these alone; at step 0, beside what was given."""
STEP: Final = "step"
"""Moment: what the stages of one step sample."""
SAVED: Final = "saved"
"""Moment: the whole training state after step k, just before it is saved."""
AFTER_SAVE: Final = "after-save"
"""Moment: the whole training state when saving has returned."""
END: Final = "end"
"""Moment: the generators when the run ends, which shows what the last step drew."""

STAGE_OF_KIND: Final = {
    "rng": "rng",
    "structure": "hyperparameters",
    "hyper": "hyperparameters",
    "inputs": "inputs",
    "buffer": "buffers",
    "loss": "loss",
    "grad": "grad",
    "updates": "scaler",
    "scaler": "scaler",
    "state": "state",
    "param": "param",
    "schedule": "schedule",
    "ema": "ema",
    "data": "data",
    "extra": "extra",
}
"""The stage that each kind of item belongs to."""

NONE, ZERO, NONZERO = 0, 1, 2
PRESENCE: Final = ("none", "zero", "nonzero")
"""Gradient presence by its number in a trace; three things, never folded."""


class Item(NamedTuple):
    """One sampled thing. -1 stands for "not of any" optimizer or group.

    `name` is a parameter, buffer, generator, input leaf, or a path in a state_dict; `key` a state key or
    hyperparameter; `part` counts what happens several times in a step (forward calls, updates), from 0.
    """

    kind: str
    name: str = ""
    key: str = ""
    optimizer: int = -1
    group: int = -1
    part: int = 0

    @property
    def stage(self) -> str:
        """The stage of a step that this item belongs to."""
        return STAGE_OF_KIND[self.kind]


class Sample(NamedTuple):
    """What was seen of an item: digest of a tensor (by the trace's algorithm) or of a plain value (blake2b).

    `spec` is None for plain values, `digest` None for an absent gradient. `value` is a plain number, a text, or
    the value of a one-element tensor; `norm` the L2 norm of larger floating tensors.
    """

    spec: TensorSpec | None
    digest: bytes | None
    presence: int | None = None
    norm: float | None = None
    value: Scalar | None = None

    def same_as(self, other: "Sample") -> bool:
        """Whether both sides hold the same content: dtype, shape, bytes and gradient presence."""
        return self.digest == other.digest and self.presence == other.presence and self.spec == other.spec

"""Which whole parts two checkpoints of one run share, byte for byte: all weights, or all of the optimizer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.series import MAX_BYTES, Reader
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry, TrainingState

_WIDE: Final = ("float32", "float64")
"""Dtypes in which an update moves a weight; in narrower ones it may be rounded away."""
_LIKE_THEIR_PARAMETER: Final = ("exp_avg", "momentum_buffer", "square_avg")


@dataclass(frozen=True, slots=True)
class Same:
    """What a later checkpoint holds byte for byte of an earlier one.

    Attributes:
        weights, moments: how many tensors, where all weights, or all state of all optimizers, are the same; else 0.
        moving: whether the weights must have moved in between: a rate above 0, and they are what the optimizer trains.
    """

    weights: int
    moments: int
    moving: bool


def same_parts(left: Checkpoint, right: Checkpoint, max_bytes: int = MAX_BYTES) -> Same | None:
    """Hold all weights and all state of two checkpoints of one run against each other; None where neither is the same.

    Both differ in their first bytes in a healthy run, so that little is read. DamagedCheckpointError where bytes are
    missing.
    """
    reader = Reader(max_bytes)
    weights = _all_equal(_weights(left.state), _weights(right.state), reader)
    moments = _all_equal(_moments(left.state), _moments(right.state), reader)
    if moments and not _same_counters(left.state, right.state):
        moments = 0
    return Same(weights, moments, _moving(left.state)) if weights or moments else None


def _weights(state: TrainingState) -> dict[str, TensorRef | None]:
    return {name: one.entry.ref for name, one in state.parameters.items() if _is_large(one.entry)}


def _moments(state: TrainingState) -> dict[str, TensorRef | None]:
    return {key: entry.ref for key, entry in _state(state) if _is_large(entry)}


def _state(state: TrainingState) -> Iterator[tuple[str, Entry]]:
    for place, optimizer in enumerate(state.optimizers):
        for name, kept in optimizer.state.items():
            yield from ((f"{place}/{name}/{key}", entry) for key, entry in kept.items())


def _is_large(entry: Entry) -> bool:
    return entry.spec is not None and entry.spec.numel > 1


def _all_equal(left: dict[str, TensorRef | None], right: dict[str, TensorRef | None], reader: Reader) -> int:
    """How many tensors there are, if both sides have the same ones and all are equal, and not all of them zero."""
    if not left or left.keys() != right.keys():
        return 0
    zero = True
    for name, one in left.items():
        other = right[name]
        if one is None or other is None or one.spec != other.spec or reader.exhausted or not reader.equal(one, other):
            return 0
        zero = zero and not reader.holds_something(one)
    return 0 if zero else len(left)


def _same_counters(left: TrainingState, right: TrainingState) -> bool:
    before, after = (
        {key: finite_number(entry) for key, entry in _state(side) if key.endswith("/step")} for side in (left, right)
    )
    return before == after


def _moving(state: TrainingState) -> bool:
    specs = [one.entry.spec for one in state.parameters.values() if one.entry.spec is not None]
    wide = [spec.shape for spec in specs if spec.dtype in _WIDE]
    if 2 * len(wide) < len(specs) or len(state.optimizers) > 1:
        return False
    if not state.optimizers:
        return True
    rates = [finite_number(group.hyperparameters.get("lr")) for group in state.optimizers[0].groups]
    own = (
        entry.spec.shape
        for key, entry in _state(state)
        if key.rpartition("/")[2] in _LIKE_THEIR_PARAMETER and entry.spec is not None
    )
    return any(rate is not None and rate > 0 for rate in rates) and {*own} <= {*wide}

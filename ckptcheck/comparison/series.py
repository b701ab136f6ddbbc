"""The checkpoints of one run in a row: what each is told by, and whether the moments of two are the same bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.bindings import COUNTERS
from ckptcheck.comparison.schedule_pairs import schedulers_in
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry, TrainingState

SAMPLED: Final = 32
"""Parameters of each optimizer whose update counter is read."""
MAX_BYTES: Final = 1 << 31
"""Bytes of both sides that a comparison of moments reads before it stops."""

_FIRST_BYTES: Final = 1 << 12
_BLOCK_BYTES: Final = 1 << 20
_NO_MOMENTS: Final = COUNTERS | {"mu_product", "eta", "mu", "ax"}
"""ASGD's `ax` is a copy of the weights, which bfloat16 may not move."""
_UNAMBIGUOUS: Final = ("global_step", "global_steps", "global_iter", "num_updates", "iter_num", "iteration")


@dataclass(frozen=True, slots=True)
class Described:
    """What one checkpoint of a run is told by; no tensor but one-element counters is read for it.

    Attributes:
        convention: its writer.
        step: completed steps as it records them, None where it does not; `recorded` in its own words.
        counts_all: whether that step surely counts from the start of the training, and not of an epoch.
        updates: counters of updates by "optimizer/parameter", of some parameters of each optimizer.
        schedule: how far its schedule is; None without one or with several that disagree.
        parameters: shapes by name of the model's parameters and buffers.
        model_bytes: of these.
        nbytes: of all files.
        with_optimizer: whether it holds the state of an optimizer.
    """

    convention: str
    step: int | None
    recorded: str
    counts_all: bool
    updates: Mapping[str, float]
    schedule: int | None
    parameters: Mapping[str, tuple[int, ...]]
    model_bytes: int
    nbytes: int
    with_optimizer: bool

    @property
    def most_updates(self) -> float | None:
        """Of the parameter that was updated most often."""
        return max(self.updates.values(), default=None)


@dataclass(frozen=True, slots=True)
class Stale:
    """Which moments of a later checkpoint are byte for byte those of an earlier one, though updates lie between.

    `moved` are parameters that were updated meanwhile as far as anything tells, `stale` those of them whose moments
    are equal and not all zero; `unread` had not been looked at when `MAX_BYTES` were read.
    """

    moved: int
    stale: tuple[str, ...]
    unread: int = 0


def describe(checkpoint: Checkpoint) -> Described:
    """What a checkpoint is told by; counters that cannot be read are left out."""
    state = checkpoint.state
    entries = {name: one.entry for name, one in state.parameters.items()} | dict(state.buffers)
    return Described(
        convention=checkpoint.convention,
        step=state.step,
        recorded=checkpoint.recorded_step,
        counts_all=_counts_all(checkpoint),
        updates=dict(_updates(state)),
        schedule=_position(state),
        parameters={name: one.spec.shape for name, one in entries.items() if one.spec is not None},
        model_bytes=sum(one.nbytes for one in entries.values()),
        nbytes=checkpoint.raw.nbytes,
        with_optimizer=any(one.state for one in state.optimizers),
    )


def _counts_all(checkpoint: Checkpoint) -> bool:
    """Whether the recorded step has a name that is not used for steps within an epoch, or no epoch stands beside it."""
    if checkpoint.state.step is None:
        return False
    name = checkpoint.recorded_step.partition(" ")[0].rpartition(".")[2].lower()
    beside = checkpoint.state.sections.get("progress", {})
    return name in _UNAMBIGUOUS or not any("epoch" in path.lower() for path in beside)


def _updates(state: TrainingState) -> Iterator[tuple[str, float]]:
    for place, optimizer in enumerate(state.optimizers):
        counted = sorted(name for name, kept in optimizer.state.items() if "step" in kept)
        for name in counted[:SAMPLED]:
            if (value := finite_number(optimizer.state[name]["step"])) is not None:
                yield f"{place}/{name}", value
        for group, one in enumerate(optimizer.groups):
            if (value := finite_number(one.hyperparameters.get("step"))) is not None:
                yield f"{place}/group {group}", value


def _position(state: TrainingState) -> int | None:
    found = {
        int(value)
        for fields in schedulers_in(state.sections.get("schedule", {})).values()
        if (value := finite_number(fields.get("last_epoch"))) is not None
    }
    return found.pop() if len(found) == 1 else None


def stale_moments(left: Checkpoint, right: Checkpoint, max_bytes: int = MAX_BYTES) -> Stale | None:
    """Hold the moments of two checkpoints of one run against each other; None where nothing tells of updates between.

    Healthy moments differ in their first bytes, so that little is read. DamagedCheckpointError where bytes are missing.
    """
    advanced = left.state.step is not None and right.state.step is not None and left.state.step < right.state.step
    reader = Reader(max_bytes)
    moved, stale, unread = 0, [], 0
    for one, other in zip(left.state.optimizers, right.state.optimizers, strict=False):
        for name, kept in one.state.items():
            pairs = list(_pairs(kept, other.state.get(name, {})))
            if not pairs:
                continue
            if reader.exhausted:
                unread += 1
            elif _counter_advanced(kept, other.state[name]) or (
                advanced and _weight_changed(name, left, right, reader)
            ):
                moved += 1
                stale += [name] if reader.all_equal(pairs) else []
    return Stale(moved, tuple(stale), unread) if moved or unread else None


def _pairs(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> Iterator[tuple[TensorRef, TensorRef]]:
    """The moments of a parameter on both sides; none where a side lacks one or it has another form."""
    found = []
    for key, one in left.items():
        if one.spec is None or key in _NO_MOMENTS:
            continue
        other = right.get(key)
        if one.ref is None or other is None or other.ref is None or other.spec != one.spec:
            return
        found.append((one.ref, other.ref))
    yield from found


def _counter_advanced(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> bool:
    values = [finite_number(side.get("step")) for side in (left, right)]
    return values[0] is not None and values[1] is not None and values[0] < values[1]


def _weight_changed(name: str, left: Checkpoint, right: Checkpoint, reader: "Reader") -> bool:
    refs = [side.state.parameters[name].entry.ref for side in (left, right) if name in side.state.parameters]
    if len(refs) < 2 or refs[0] is None or refs[1] is None or refs[0].spec != refs[1].spec:
        return False
    return not reader.equal(refs[0], refs[1])


class Reader:
    """Compares tensors from their first bytes on, up to the first difference, and counts what it read."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    @property
    def exhausted(self) -> bool:
        """Whether as many bytes were read as may be."""
        return self._left <= 0

    def all_equal(self, pairs: list[tuple[TensorRef, TensorRef]]) -> bool:
        """Whether all pairs are equal, and not all of them zero."""
        return all(self.equal(*pair) for pair in pairs) and any(self.holds_something(one) for one, _ in pairs)

    def equal(self, left: TensorRef, right: TensorRef) -> bool:
        """Whether two tensors of one spec are the same bytes."""
        start, size = 0, _FIRST_BYTES
        while start < left.spec.nbytes:
            if self.block(left, start, size) != self.block(right, start, size):
                return False
            start, size = start + size, _BLOCK_BYTES
        return True

    def holds_something(self, ref: TensorRef) -> bool:
        """Whether any byte is not zero."""
        for start in range(0, ref.spec.nbytes, _BLOCK_BYTES):
            block = self.block(ref, start, _BLOCK_BYTES)
            if block.count(0) < len(block):
                return True
        return False

    def block(self, ref: TensorRef, start: int, size: int) -> bytearray:
        """Up to `size` bytes from `start` on."""
        read = bytearray(min(size, ref.spec.nbytes - start))
        ref.read_into(start, memoryview(read))
        self._left -= len(read)
        return read

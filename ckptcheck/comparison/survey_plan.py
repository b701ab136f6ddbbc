"""Which tensors of a checkpoint are surveyed, and where in its files each one's bytes lie."""

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, NamedTuple

from ckptcheck.errors import CheckpointError
from ckptcheck.optimizers.table import SECOND_MOMENTS
from ckptcheck.state.raw import RawTensor, Stretch, stretches
from ckptcheck.state.tensor import TensorRef, TensorSpec
from ckptcheck.state.training_state import SECTIONS, Entry, TrainingState
from ckptcheck.trace.items import Item

FLOATS: Final = ("float", "bfloat", "complex")
"""How the names of dtypes begin whose elements are counted."""
NOT_COUNTED: Final = "float4_e2m1fn_x2"
"""Half bytes are codes of a quantised tensor."""
SPARE_BYTES: Final = 1 << 20
MOST_REPEATS: Final = 4
"""A view that repeats its storage more often than this, and by more than `SPARE_BYTES`, is not read."""


class Part(NamedTuple):
    """Some bytes of a tensor: where they begin and end in their home, the place of the tensor, the byte in it."""

    begin: int
    end: int
    place: int
    start: int


@dataclass(frozen=True, slots=True)
class Home:
    """The parts in one file, in order; `reach[i]` is the farthest end of the first i + 1."""

    parts: Sequence[Part]
    begins: Sequence[int]
    reach: Sequence[int]

    def met(self, begin: int, end: int) -> Iterator[Part]:
        """Those that a run of bytes meets."""
        for place in range(bisect_right(self.reach, begin), len(self.parts)):
            part = self.parts[place]
            if part.begin >= end:
                return
            if part.end > begin:
                yield part


@dataclass(slots=True)
class Plan:
    """What to survey: each tensor once, however many names it has.

    Attributes:
        refs: the tensors, with their axes in the order in which they lie.
        axes: of each, which of its own axes these are.
        items: of each, the names that it stands under.
        homes: where those lie that can be seen while members are verified.
        pairs: places of a second moment and of its first moment, by the item of the second.
        unread: what cannot be surveyed at all, and why.
    """

    refs: list[TensorRef] = field(default_factory=list)
    axes: list[tuple[int, ...]] = field(default_factory=list)
    items: list[list[Item]] = field(default_factory=list)
    homes: dict[Hashable, Home] = field(default_factory=dict)
    pairs: dict[Item, tuple[int, int]] = field(default_factory=dict)
    unread: dict[Item, str] = field(default_factory=dict)


def plan_of(state: TrainingState) -> Plan:
    """Where every floating tensor of a training state lies. Reads no tensor."""
    plan = Plan()
    places: dict[object, int] = {}
    parts: dict[Hashable, list[Part]] = {}
    by_item: dict[Item, int] = {}
    for item, entry in entries_in(state):
        if entry.spec is None or not is_counted(entry.spec.dtype):
            continue
        if entry.ref is None:
            plan.unread[item] = "its bytes are not in the checkpoint"
            continue
        ref, axes = _as_it_lies(entry.ref)
        try:
            where = _where(ref)
        except CheckpointError as trouble:
            plan.unread[item] = str(trouble)
            continue
        key = (entry.spec, axes, where) if where is not None else id(entry.ref)
        place = places.setdefault(key, len(plan.refs))
        by_item[item] = place
        if place < len(plan.refs):
            plan.items[place].append(item)
            continue
        plan.refs.append(ref)
        plan.axes.append(axes)
        plan.items.append([item])
        for one in where or ():
            parts.setdefault(one.home, []).append(Part(one.begin, one.begin + one.nbytes, place, one.start))
    plan.homes = {home: _home(found) for home, found in parts.items()}
    plan.pairs = _pairs(by_item, plan.axes)
    return plan


def entries_in(state: TrainingState) -> Iterator[tuple[Item, Entry]]:
    """Every entry of a training state that can be a floating tensor, by where it stands."""
    for name, parameter in state.parameters.items():
        yield Item("param", name), parameter.entry
        if parameter.grad is not None:
            yield Item("grad", name), parameter.grad
    for name, entry in state.buffers.items():
        yield Item("buffer", name), entry
    for place, optimizer in enumerate(state.optimizers):
        for name, kept in optimizer.state.items():
            for key, entry in kept.items():
                yield Item("state", name, key, place), entry
    for section in SECTIONS:
        for path, entry in state.sections.get(section, {}).items():
            yield Item(section, path), entry


def is_counted(dtype: str) -> bool:
    """Whether elements of this dtype are floats or pairs of floats."""
    return dtype.startswith(FLOATS) and dtype != NOT_COUNTED


def _as_it_lies(ref: TensorRef) -> tuple[TensorRef, tuple[int, ...]]:
    """A tensor with its axes in the order in which they lie, and which axis each was."""
    axes = tuple(range(len(ref.spec.shape)))
    ordered = getattr(ref.read_into, "in_memory_order", None)
    if not isinstance(ref, RawTensor) or ref.stride is None or ordered is None:
        return ref, axes
    read_into, axes = ordered()
    shape = tuple(ref.spec.shape[axis] for axis in axes)
    return replace(ref, spec=TensorSpec(ref.spec.dtype, shape), read_into=read_into), axes


def _where(ref: TensorRef) -> tuple[Stretch, ...] | None:
    """Where a tensor's bytes lie; None where they must be fetched. CheckpointError where they cannot be read."""
    nbytes = ref.spec.nbytes
    storage = ref.storage if isinstance(ref, RawTensor) else None
    if storage is not None and nbytes > MOST_REPEATS * storage.nbytes + SPARE_BYTES:
        raise CheckpointError(f"it repeats {storage.nbytes} stored bytes until they are {nbytes}")
    return stretches(ref.read_into, 0, nbytes) if nbytes else None


def _home(parts: list[Part]) -> Home:
    parts.sort()
    return Home(parts, [one.begin for one in parts], [*accumulate((one.end for one in parts), max)])


def _pairs(places: dict[Item, int], axes: Sequence[tuple[int, ...]]) -> dict[Item, tuple[int, int]]:
    """Second and first moments whose elements lie in one order, as those do that an optimizer makes."""
    found = {}
    for item, second in places.items():
        first = places.get(item._replace(key=SECOND_MOMENTS.get(item.key, "")))
        if item.kind == "state" and first is not None and axes[first] == axes[second]:
            found[item] = second, first
    return found

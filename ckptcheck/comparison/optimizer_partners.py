"""Which optimizer of one side answers to which of the other: by label, else by members, else by place."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ckptcheck.comparison.checkpoint_diff import OptimizerPair
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.training_state import Optimizer

_UNKNOWN = Naming(NameSource.KEYS, certain=True, reason="")
"""Of a state that came without an explanation: it goes by names."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side's optimizers, and of each where its names come from and what its file calls it ("" for nothing)."""

    optimizers: tuple[Optimizer, ...]
    namings: tuple[Naming, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Side":
        """As the convention explained them."""
        optimizers = checkpoint.state.optimizers
        namings, labels = checkpoint.namings, checkpoint.optimizer_labels
        count = len(optimizers)
        return cls(
            optimizers,
            (*namings[:count], *(_UNKNOWN for _ in optimizers[len(namings) :])),
            (*labels[:count], *("" for _ in optimizers[len(labels) :])),
        )

    def is_named(self, place: int) -> bool:
        """Whether an optimizer's parameters go by names, certain or not."""
        return self.namings[place].source is not NameSource.NONE

    def members(self, place: int) -> frozenset[str]:
        """The named parameters of an optimizer; empty where they have none."""
        if not self.is_named(place):
            return frozenset()
        one = self.optimizers[place]
        listed = (member for group in one.groups for member in group.members if member is not None)
        return frozenset((*listed, *one.state))


def partners(left: Side, right: Side) -> list[tuple[int | None, int | None]]:
    """Places of optimizers that belong together, in the left's order; None on a side that lacks it.

    Labels decide where every optimizer of both sides has its own and the sides have some in common; what they leave
    over is then on one side only. Without such labels those with the most members in common belong together, and
    then the first that are left over.
    """
    known = dict(_by_label(left, right))
    if not known:
        known = _by_members(left, right)
        free = [place for place in range(len(right.optimizers)) if place not in known.values()]
        open_places = [place for place in range(len(left.optimizers)) if place not in known]
        known.update(zip(open_places, free, strict=False))
    paired: list[tuple[int | None, int | None]] = [(place, known.get(place)) for place in range(len(left.optimizers))]
    return paired + [(None, place) for place in range(len(right.optimizers)) if place not in known.values()]


def _by_label(left: Side, right: Side) -> list[tuple[int, int]]:
    if not (_tell_apart(left.labels) and _tell_apart(right.labels)):
        return []
    return [(place, right.labels.index(label)) for place, label in enumerate(left.labels) if label in right.labels]


def _tell_apart(labels: Sequence[str]) -> bool:
    return all(labels) and len(set(labels)) == len(labels)


def _by_members(left: Side, right: Side) -> dict[int, int]:
    """Most in common first; of equals those at the same place, then the first."""
    ours, theirs = ([side.members(place) for place in range(len(side.optimizers))] for side in (left, right))
    common = [
        (-len(one & other), place != at, place, at)
        for place, one in enumerate(ours)
        for at, other in enumerate(theirs)
        if one & other
    ]
    found: dict[int, int] = {}
    for _, _, place, at in sorted(common):
        if place not in found and at not in found.values():
            found[place] = at
    return found


def doubts(left: Side, right: Side, optimizers: Iterable[OptimizerPair]) -> Iterator[str]:
    """A sentence for each optimizer that stands elsewhere, and for each side that has no names that are certain."""
    for one in optimizers:
        if one.left is not None and one.right is not None and one.left != one.right and not one.label:
            yield f"optimizer {one.left} on the left is optimizer {one.right} on the right: paired by their members"
        said = [_doubt(side, place) for side, place in ((left, one.left), (right, one.right))]
        sides = ["on both sides"] if said[0] == said[1] else ["on the left", "on the right"]
        for side, doubt in zip(sides, said, strict=False):
            if doubt:
                place = one.left if one.left is not None else one.right
                called = one.label if one.label.startswith("optimizer") else f"optimizer {one.label or place}"
                yield f"{called} {side}: {doubt}"


def _doubt(side: Side, place: int | None) -> str:
    if place is None or side.namings[place].certain:
        return ""
    reason = f": {side.namings[place].reason}" if side.namings[place].reason else ""
    return ("its parameter names are not certain" if side.is_named(place) else "it has no parameter names") + reason

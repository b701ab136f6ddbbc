"""Gradients that differ and that no update reads: they are cleared before their optimizer steps again.

Optimizers may take turns, as those of a generator and its critic do. What the last update of one has left in `.grad`
lies there while another steps, and is not there in a run that was resumed in between.
"""

from collections.abc import Collection, Sequence
from typing import Final

from ckptcheck.comparison.groups import parse_groups
from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.trace_pairs import STRUCTURE, Difference
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.trace.items import NONZERO, STEP, Item
from ckptcheck.trace.reading import Trace

_GRAD: Final = STAGE_ORDER["grad"]


def without_unread_gradients(
    left: Trace, right: Trace, steps: Sequence[int], differences: Sequence[Difference]
) -> list[Difference]:
    """The differences without gradients that no update reads. `steps` are those compared, ascending.

    A gradient waits in a step in which none of its parameter's optimizers makes an update. It was cleared if the next
    update of theirs reads an equal one. If that reads another one, or none follows, it may be gathered for it: then it
    is unread only where the last update has used it up, nothing was added since, and something else differs before.
    What differs beside other gradients of its step stays: a norm over all of them may have read it.
    """
    if not any(one.stage == "grad" for one in differences):
        return list(differences)
    updates = _Updates(left, right)
    waiting = {one for one in differences if one.stage == "grad" and updates.rests(one.step, one.item.name)}
    others = sorted({one.order for one in differences if one not in waiting})
    apart = {(one.step, one.item.name) for one in differences if one.stage == "grad"}
    unread = {one for one in waiting if _is_unread(one, steps, apart, others, updates)}
    return [one for one in differences if one not in unread]


def _is_unread(
    one: Difference,
    steps: Sequence[int],
    apart: Collection[tuple[int, str]],
    others: Sequence[tuple[int, int]],
    updates: "_Updates",
) -> bool:
    if one.order in others:
        return False
    name = one.item.name
    read = next((step for step in steps if step > one.step and not updates.rests(step, name)), None)
    if read is not None and (read, name) not in apart:
        return True
    if not updates.used_up(one):
        return False
    return read is None or any((one.step, 0) <= order < (read, _GRAD) for order in others)


class _Updates:
    """Which optimizers made an update in which step of two traces, and what the updates read."""

    def __init__(self, left: Trace, right: Trace) -> None:
        self._sides = left, right
        self._origins = Origins(left)
        self._owners: dict[tuple[bytes | None, ...], dict[str | None, frozenset[int]]] = {}
        self._resting: dict[tuple[int, int], bool] = {}
        self._groups: dict[int, tuple[bytes | None, ...]] = {}

    def rests(self, step: int, name: str) -> bool:
        """Whether a parameter has optimizers, and none of them made an update in this step of either run."""
        owners = self._owners_of(step, name)
        return bool(owners) and all(self._rests(step, place) for place in owners)

    def used_up(self, one: Difference) -> bool:
        """Whether what lies there on the left is what the last update read, or both sides hold zeros or nothing."""
        sides = one.left, one.right
        if all(side is None or side.presence != NONZERO for side in sides):
            return True
        digest = one.left.digest if one.left is not None else None
        owners = self._owners_of(one.step, one.item.name)
        return digest is not None and any(
            self._origins.last_read(one.step, place, one.item.name, digest) for place in owners
        )

    def _owners_of(self, step: int, name: str) -> frozenset[int]:
        if step not in self._groups:
            self._groups[step] = tuple(side.digest(step, STEP, STRUCTURE) for side in self._sides)
        key = self._groups[step]
        if key not in self._owners:
            found: dict[str | None, frozenset[int]] = {}
            for side, digest in zip(self._sides, key, strict=True):
                for place, groups in enumerate(parse_groups(side.text(digest) if digest is not None else None)):
                    for member in (member for group in groups for member in group):
                        found[member] = found.get(member, frozenset()) | {place}
            self._owners[key] = found
        return self._owners[key].get(name, frozenset())

    def _rests(self, step: int, place: int) -> bool:
        if (step, place) not in self._resting:
            self._resting[step, place] = all(self._made(side, step, place) == 0 for side in self._sides)
        return self._resting[step, place]

    @staticmethod
    def _made(trace: Trace, step: int, place: int) -> int | None:
        """How many updates an optimizer made in a step; None where that is not known."""
        sample = trace.sample(step, STEP, Item("updates", optimizer=place))
        return sample.value if sample is not None and isinstance(sample.value, int) else None

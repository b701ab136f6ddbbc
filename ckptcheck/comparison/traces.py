"""Two traces compared step by step and stage by stage, by name; memory does not grow with tensors x steps read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.comparison.trace_pairs import FLAGS, UNMATCHED, Difference, TracePair
from ckptcheck.comparison.unread import without_unread_gradients
from ckptcheck.errors import TraceError
from ckptcheck.finding import Compared
from ckptcheck.trace.items import END, STEP, Item
from ckptcheck.trace.reading import Trace
from ckptcheck.trace.whole_steps import is_thinned, whole_steps

__all__ = ["FLAGS", "UNMATCHED", "Difference", "TraceDiff", "compare_traces"]

WHOLE_STEPS: Final = 2
"""Differing steps of which every difference is kept."""
KEPT_A_KIND: Final = 64
"""Differences of one kind of tensor that are kept of each later step."""


@dataclass(frozen=True, slots=True)
class TraceDiff:
    """What differs between two traces over the steps that both have.

    `differences` are in order of step, stage and name. `steps` are those compared. `drawn` are the generators that
    either side drew from within them, without those that it set anew in the first of them. `left_only` and
    `right_only` are steps between the first and last compared one that only one side has, where both recorded every
    one. `left_out` counts differences that were seen and not kept. In `differences`, the value of a structure is its
    JSON text.
    """

    steps: tuple[int, ...]
    compared: Compared
    differences: tuple[Difference, ...]
    drawn: frozenset[str] = frozenset()
    left_only: tuple[int, ...] = ()
    right_only: tuple[int, ...] = ()
    left_out: int = 0
    inputs_unseen: bool = False
    """Whether one side has seen nothing of what entered the model, so that inputs could not be compared."""

    @property
    def first(self) -> Difference | None:
        """The first difference in time, or None."""
        return self.differences[0] if self.differences else None

    def at_first_stage(self) -> tuple[Difference, ...]:
        """All differences of the first step and stage that differ."""
        if not self.differences:
            return ()
        return tuple(one for one in self.differences if one.order == self.differences[0].order)

    def without(self, floor: Mapping[Item, int]) -> "TraceDiff":
        """Without items from the step on at which they differ between equal runs, and without undrawn generators."""
        kept = tuple(
            one
            for one in self.differences
            if floor.get(one.item, one.step + 1) > one.step
            and not (one.item.kind == "rng" and one.item.name not in self.drawn)
        )
        return replace(self, differences=kept)

    def floor(self) -> dict[Item, int]:
        """For a pair of equal runs: each item that differs, with the first step at which it does."""
        first: dict[Item, int] = {}
        for one in self.differences:
            first.setdefault(one.item, one.step)
        return first


def compare_traces(
    left: Trace, right: Trace, first: int | None = None, last: int | None = None, *, every: bool = False
) -> TraceDiff:
    """Compare all steps from `first` to `last` that both traces have; all of them where None.

    Of a step after the first two that differ, at most `KEPT_A_KIND` differing tensors of each kind are kept, unless
    `every` one is asked for; `left_out` counts the others. Steps of which gradients alone differ count by themselves.
    Gradients that no update reads are no difference.
    Raises TraceError when the digests were made by different algorithms.
    """
    if left.header["digest"] != right.header["digest"]:
        raise TraceError(
            f"{left.path} holds {left.header['digest']} digests, {right.path} {right.header['digest']}: "
            f"unlike digests cannot be compared; record both with the same --digest"
        )
    whole = whole_steps(left), whole_steps(right)
    first = first if first is not None else max(whole[0][:1] + whole[1][:1], default=1)
    last = last if last is not None else min(whole[0][-1:] + whole[1][-1:], default=0)
    spans = [{step for step in steps if first <= step <= last} for steps in whole]
    steps = tuple(sorted(spans[0] & spans[1]))
    thinned = is_thinned(left) or is_thinned(right)
    pair = TracePair(left, right)
    differences: list[Difference] = []
    in_full = {"grad": 0, "other": 0}  # gradients alone may be left over from others' turns, step by step
    left_out = 0
    for step in steps:
        found, beyond = pair.differences(step, None if every or in_full["other"] < WHOLE_STEPS else KEPT_A_KIND)
        kind = "grad" if all(one.stage == "grad" for one in found) else "other"
        whole_step = every or kind == "other" or in_full[kind] < WHOLE_STEPS
        kept = found if whole_step else found[:KEPT_A_KIND]
        differences += kept
        in_full[kind] += bool(found)
        left_out += beyond + len(found) - len(kept)
    reseeded = _reseeded(left, right, steps, differences)
    differences = [one for one in differences if (one.step, one.item) not in reseeded]
    differences = without_unread_gradients(left, right, steps, differences)
    set_anew = {item.name for step, item in reseeded if step == steps[0]}
    return TraceDiff(
        steps=steps,
        compared=pair.compared(len(steps)),
        differences=tuple(differences),
        drawn=frozenset((_drawn(left, steps) | _drawn(right, steps)) - set_anew),
        left_only=() if thinned else tuple(sorted(spans[0] - spans[1])),
        right_only=() if thinned else tuple(sorted(spans[1] - spans[0])),
        left_out=left_out,
    )


def _reseeded(
    left: Trace, right: Trace, steps: tuple[int, ...], differences: list[Difference]
) -> set[tuple[int, Item]]:
    """Generators, with steps, that differ when the step begins and agree when it ends: it has set them anew.

    Two streams never meet again by drawing, so a run that seeds at the start of each step differs only until then.
    """
    apart = {(one.step, one.item) for one in differences if one.item.kind == "rng"}
    found = set()
    for step, item in apart:
        if step + 1 in steps:
            agree = (step + 1, item) not in apart
        else:
            ends = [trace.digest(*_after(trace, step), item) for trace in (left, right)]
            agree = ends[0] is not None and ends[0] == ends[1]
        if agree:
            found.add((step, item))
    return found


def _after(trace: Trace, step: int) -> tuple[int, str]:
    """The moment at which the generators are as a step has left them."""
    return (step + 1, STEP) if (step + 1, STEP) in trace.moments else (step, END)


def _drawn(trace: Trace, steps: tuple[int, ...]) -> set[str]:
    """The generators whose state changed within the steps."""
    if not steps:
        return set()
    moments = [*((step, STEP) for step in steps), _after(trace, steps[-1])]
    names = {item.name for item, _ in trace.tensors() if item.kind == "rng"}
    drawn = set()
    for name in names:
        digests = {digest for moment in moments if (digest := trace.digest(*moment, Item("rng", name))) is not None}
        if len(digests) > 1:
            drawn.add(name)
    return drawn

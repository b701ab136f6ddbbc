"""Random generators of a resumed script: which of them that differ reach what is trained, and which do not.

A script's generators are seen when a step begins, after its first batch was drawn. A data loader draws a seed there
that often serves nothing, so that a generator may differ although it was loaded, and be drawn from without any effect.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.trace.items import END, Item
from ckptcheck.trace.reading import Trace

REACHED: Final = frozenset({"buffers", "loss", "grad", "state", "param"})
"""Stages, beside the inputs, that may differ by what was drawn within the same step."""


class Stream:
    """The states of one generator of one run, by step: when each begins, and when the run ends."""

    def __init__(self, trace: Trace, name: str) -> None:
        item = Item("rng", name)
        self._states = dict(trace.digests(item))
        last = max(self._states, default=0)
        end = trace.digest(last, END, item) if (last, END) in trace.moments else None
        if end is not None:
            self._states[last + 1] = end
        self._steps = sorted(self._states)

    def at(self, step: int) -> bytes | None:
        """The state when a step begins; None where it was not recorded."""
        return self._states.get(step)

    def draws_within(self, step: int) -> bool | None:
        """Whether a step, up to the next recorded one, draws; None where nobody knows."""
        place = bisect_right(self._steps, step)
        if step not in self._states or place == len(self._steps):
            return None
        return self._states[step] != self._states[self._steps[place]]

    def before(self, step: int) -> int | None:
        """The last recorded step before one."""
        place = bisect_left(self._steps, step)
        return self._steps[place - 1] if place else None


def with_draws_before(diff: TraceDiff, left: Trace) -> TraceDiff:
    """With the generators drawn from that the reference draws from just before the first compared step: its batch."""
    if not diff.steps:
        return diff
    names = {item.name for item, _ in left.tensors() if item.kind == "rng"} - diff.drawn
    found = {name for name in names if _draws_before(Stream(left, name), diff.steps[0])}
    return replace(diff, drawn=diff.drawn | found)


def _draws_before(stream: Stream, step: int) -> bool | None:
    before = stream.before(step)
    return stream.draws_within(before) if before is not None else None


def idle_generators(diff: TraceDiff, left: Trace, right: Trace, *, whole: bool = True) -> Mapping[str, int]:
    """The generators that differ and reach nothing else that differs, each with the first step that begins so.

    `left` is the reference; `whole` says whether all that follows could be compared. Where it could not, only what the
    first compared step does not draw from is idle.
    """
    apart: dict[str, int] = {}
    for one in diff.differences:
        if one.item.kind == "rng":
            apart.setdefault(one.item.name, one.step)
    other = next((one for one in diff.differences if one.item.kind != "rng"), None)
    if other is None:
        return apart if whole else {name: step for name, step in apart.items() if not _early_draws(left, name, diff)}
    return {
        name: step
        for name, step in apart.items()
        if step <= other.step and not _reaches(name, other, diff, left, right)
    }


def without_generators(diff: TraceDiff, names: Mapping[str, int]) -> TraceDiff:
    """Without what differs of some generators."""
    kept = tuple(one for one in diff.differences if one.item.kind != "rng" or one.item.name not in names)
    return replace(diff, differences=kept)


def _early_draws(left: Trace, name: str, diff: TraceDiff) -> bool:
    stream = Stream(left, name)
    return bool(_draws_before(stream, diff.steps[0])) or stream.draws_within(diff.steps[0]) is not False


def _reaches(name: str, other: Difference, diff: TraceDiff, left: Trace, right: Trace) -> bool:
    """Whether the first thing that differs beside generators may come from what was drawn from this one."""
    ours, theirs = Stream(left, name), Stream(right, name)
    if other.stage == "inputs":
        if _draws_before(ours, other.step) is False or _has_data_of_other_step(other, diff, left, ours, theirs):
            return False
        last = ours.before(other.step) or other.step
    elif other.stage in REACHED:
        if ours.draws_within(other.step) is False and theirs.draws_within(other.step) is False:
            return False
        last = other.step
    else:
        return False
    earlier = [step for step in diff.steps if step < last and ours.at(step) != theirs.at(step)]
    return not any(theirs.draws_within(step) for step in earlier)


def _has_data_of_other_step(other: Difference, diff: TraceDiff, left: Trace, ours: Stream, theirs: Stream) -> bool:
    """Whether the resumed run sees the batch of some step of the reference, and not because it draws as that one did.

    A run that forgot its generators and seeds them anew sees old batches too; its generator is then where it was.
    """
    seen = [
        (one.item, one.right.digest)
        for one in diff.differences
        if one.step == other.step and one.item.kind == "inputs" and one.right is not None and one.right.digest
    ]
    steps = Origins(left).common_steps(seen)
    return bool(steps) and all(ours.at(step) != theirs.at(other.step) for step in steps)

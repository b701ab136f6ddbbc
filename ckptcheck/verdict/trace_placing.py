"""Which of two traces is the reference, and from where on the other one goes on with it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ckptcheck.comparison.alignment import Alignment, align
from ckptcheck.finding import Json
from ckptcheck.trace.items import LOAD, STEP
from ckptcheck.trace.reading import Trace
from ckptcheck.verdict.trace_ranks import TracePair

TOLD: tuple[str, ...] = ("content", "counters")
"""What a trace itself says of its place."""


@dataclass(frozen=True, slots=True)
class PlacedPair:
    """The traces of one process with the reference on the left and both sides' steps numbered alike.

    `alignment` is None for targets, whose traces number their steps themselves. `swapped` says that the reference is
    what was given as the right side.
    """

    rank: int | None
    left: Trace
    right: Trace
    alignment: Alignment | None
    swapped: bool


def placed(pairs: Sequence[TracePair]) -> list[PlacedPair]:
    """Place every pair; where one process says nothing of its place, it is where the others are.

    All processes have the reference on the same side. Raises TraceError where digests are of different algorithms.
    """
    if not all(trace.header.get("driver") == "script" for pair in pairs for trace in (pair.left, pair.right)):
        swapped = all(_loads_from(pair.right, pair.left) for pair in pairs)
        return [PlacedPair(pair.rank, *_sides(pair, swapped), None, swapped) for pair in pairs]
    forth = [align(pair.left, pair.right) for pair in pairs]
    swapped, found = False, forth
    if not any(one.by in TOLD for one in forth):
        back = [align(pair.right, pair.left) for pair in pairs]
        if any(one.by in TOLD for one in back):
            swapped, found = True, back
    told = Counter(one.step for one in found if one.by in TOLD)
    hint = min(told, key=lambda step: (-told[step], step)) if told else None
    return [_placed(pair, one, hint, swapped) for pair, one in zip(pairs, found, strict=True)]


def _placed(pair: TracePair, alignment: Alignment, hint: int | None, swapped: bool) -> PlacedPair:
    left, right = _sides(pair, swapped)
    if alignment.by not in TOLD and hint is not None:
        alignment = align(left, right, hint)
    if not alignment.step:
        return PlacedPair(pair.rank, left, right, alignment, swapped)
    moved = right.shifted(alignment.step)
    right.close()
    return PlacedPair(pair.rank, left, moved, alignment, swapped)


def _sides(pair: TracePair, swapped: bool) -> tuple[Trace, Trace]:
    return (pair.right, pair.left) if swapped else (pair.left, pair.right)


def _loads_from(reference: Trace, resumed: Trace) -> bool:
    """Whether one trace begins with a load after a step that the other one holds, and not the other way round."""
    step = loaded_step(resumed)
    return step is not None and loaded_step(reference) is None and (step, STEP) in reference.moments


def loaded_step(trace: Trace) -> int | None:
    """The step after which a trace begins with a load; None where it begins before its first step."""
    return next((step for step, moment in trace.moments if moment == LOAD and step > 0), None)


def alignment_rows(pairs: Sequence[PlacedPair]) -> list[Json]:
    """Where each resumed trace was placed, and by what."""
    return [
        {"rank": one.rank or 0, "step": told.step, "by": told.by, "matched": told.matched, "of": told.of,
         "why": told.why}
        for one in pairs if (told := one.alignment) is not None
    ]  # fmt: skip

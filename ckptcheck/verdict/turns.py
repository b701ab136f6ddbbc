"""Optimizers that rest in some steps: the steps after which one of them is between two of its updates."""

from collections.abc import Collection, Mapping


def between_updates(
    updated: Mapping[int, Mapping[int, bool]], overflows: Collection[int], windows: Collection[int]
) -> dict[int, frozenset[int]]:
    """For each optimizer that rests, and updates again, the steps after which a counter of its turns matters.

    `updated` says by optimizer and step whether it made an update. What an overflow skipped is no rest, and a step
    within an accumulation window is none of its own: it is told as such. Where the turns come back every p steps, a
    run that counts anew from a multiple of p does as it did, so that only the other steps lie between.
    """
    found = {}
    for place, turns in updated.items():
        last = max((step for step, made in turns.items() if made), default=0)
        rests = {step for step, made in turns.items() if not made and step < last and step not in overflows}
        if rests - {*windows}:
            period = _period(turns, overflows)
            between = rests if period is None else {step for step in turns if step < last and step % period}
            found[place] = frozenset(between)
    return found


def _period(turns: Mapping[int, bool], overflows: Collection[int]) -> int | None:
    """After how many steps the turns repeat themselves; None where that is not seen twice. An overflow may hide any."""
    steps = len(turns)
    for period in range(2, steps // 2 + 1):
        pairs = ((step, step + period) for step in turns if step + period in turns)
        if all(turns[one] == turns[other] or one in overflows or other in overflows for one, other in pairs):
            return period
    return None

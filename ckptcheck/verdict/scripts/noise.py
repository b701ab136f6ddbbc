"""The noise floor of commands: equal runs that all save alike, so that what differs between them is chance."""

from collections.abc import Sequence

from ckptcheck.comparison.traces import Difference
from ckptcheck.experiment.noise import Noise, assess
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import Item


def floor_of(reference: Trace, repeats: Sequence[Trace]) -> Noise:
    """How far a run agrees with its repeats; with several, the earliest and widest difference of any pair holds."""
    # One at a time: of several, equal repeats would be taken for runs that did not save.
    noises = [assess(reference, [one]) for one in repeats]
    if not noises:
        return assess(reference, [])
    floor: dict[Item, int] = {}
    gaps: dict[str, float] = {}
    for one in noises:
        for item, step in one.floor.items():
            floor[item] = min(step, floor.get(item, step))
        for kind, gap in one.gaps.items():
            gaps[kind] = max(gap, gaps.get(kind, 0.0))
    firsts: list[Difference] = [one.first for one in noises if one.first is not None]
    pairs = sum(one.pairs for one in noises if one.first is not None)
    return Noise(floor, min(firsts, key=lambda one: one.order, default=None), gaps, None, repeated=True, pairs=pairs)

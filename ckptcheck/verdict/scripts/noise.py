"""The noise floor of commands: equal runs that all save alike, so that what differs between them is chance."""

from collections.abc import Sequence

from ckptcheck.comparison.traces import Difference
from ckptcheck.experiment.noise import FLOOR_FACTOR, NORM_RESOLUTION, Noise, assess
from ckptcheck.finding import Json
from ckptcheck.rules.runs.case import Case
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import Item
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.equal_runs import noise_part


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


def noise_told(rank: int | None, noise: Noise, case: Case, repeats: int, policy: Policy) -> dict[str, Json]:
    """The floor of a rank as data, as of a target; how far equal runs are apart is told by the norms of their tensors.

    `rank` is None where there is one only. A row of the calibration stands for all tensors of its kind.
    """
    part = noise_part(noise, [case])
    if policy.state_exact and noise.only_numeric:
        part["calibration"] = {
            "measured": "by norms",
            "repeats": repeats,
            "factor": FLOOR_FACTOR,
            "tensors": len(noise.floor),
            "widest": [
                {"run": case.run, "step": None, "section": kind, "name": None, "key": None, "rel_l2": gap,
                 "max_abs": None, "allowed": max(NORM_RESOLUTION, FLOOR_FACTOR * gap), "resumed": None}
                for kind, gap in sorted(noise.gaps.items(), key=lambda pair: (-pair[1], pair[0]))
            ],
        }  # fmt: skip
    return part if rank is None else {**part, "rank": rank}

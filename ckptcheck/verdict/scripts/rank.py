"""One rank of an experiment on commands: what its traces make a case of, and how far equal runs of it agree."""

from contextlib import ExitStack
from dataclasses import dataclass, replace

from ckptcheck.experiment.commands.plan import CommandExperiment
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.commands.second_pass import Measure, measured_ranks
from ckptcheck.experiment.noise import Noise
from ckptcheck.rules.runs.case import Case
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.scripts.cases import Stopped, case_of
from ckptcheck.verdict.scripts.measuring import apart, left_open, with_measure
from ckptcheck.verdict.scripts.noise import floor_of
from ckptcheck.verdict.scripts.placing import Placed
from ckptcheck.verdict.scripts.ranks import Crew, crews


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of the experiment: its traces, what they make a case of, and how far equal runs agree.

    `measure` is None where nothing was measured; `left_open` are steps that were not held against a tolerance.
    """

    crew: Crew
    case: Case
    placed: Placed | None
    noise: Noise
    measure: Measure | None = None
    left_open: frozenset[int] = frozenset()


def judged_ranks(
    whole: dict[str, Recorded], source: Recorded, stopped: Stopped, policy: Policy, opened: ExitStack
) -> list[Rank]:
    """The ranks of an experiment whose runs were made; what is opened for them is closed with `opened`."""
    ranks = []
    for crew in crews(whole, source, stopped.resumed):
        noise = floor_of(crew.reference, crew.repeats)
        case, placed = case_of(crew, stopped, noise, policy)
        if placed is not None:
            opened.callback(placed.trace.close)
        ranks.append(Rank(crew, case, placed, noise))
    return ranks


def measured(ranks: list[Rank], experiment: CommandExperiment, policy: Policy) -> tuple[list[Rank], list[Recorded]]:
    """The ranks with the exact differences, and the two runs that were made for that; none where nothing differs."""
    if not any(one.placed and _has_numbers(one.case) for one in ranks):
        return ranks, []
    differing = [apart(one.crew.rank, one.case, one.crew.reference, one.placed, len(ranks)) for one in ranks]
    measures, runs = measured_ranks(experiment, differing, tolerance=policy.tolerance)
    told = [
        replace(one, case=with_measure(one.case, measure, policy, wanted.curve), measure=measure,
                left_open=left_open(one.case, measure, policy))
        for one, measure, wanted in zip(ranks, measures, differing, strict=True)
    ]  # fmt: skip
    return told, runs


def _has_numbers(case: Case) -> bool:
    """Whether anything differs that can be measured, and not only which steps were made."""
    return not case.goes_on_exactly and (case.first is not None or bool(case.load is not None and case.load.entries))

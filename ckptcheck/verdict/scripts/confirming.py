"""Whether what differs in a resumed script repeats itself: another run from the same checkpoint tells.

What was made once more to measure serves first; another run is made where that did not come far enough.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.comparison.traces import Difference, TraceDiff, compare_traces
from ckptcheck.errors import OutputError
from ckptcheck.experiment.commands.plan import AGAIN, REFERENCE, RESUMED, CommandExperiment
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.noise import NUMERIC
from ckptcheck.rules.runs.judge import judge
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import STEP
from ckptcheck.verdict.equal_runs import MORE, by_chance, repeats_itself, with_chance
from ckptcheck.verdict.scripts.rank import Rank

ONCE_MORE: Final = f"{AGAIN}-once-more"


def confirmed(
    ranks: list[Rank], experiment: CommandExperiment, again: Sequence[Recorded]
) -> tuple[list[Rank], list[Recorded]]:
    """The ranks without what the resumed run does not repeat, and the runs that were made to tell.

    `again` are the runs that were made once more to measure. Nothing is made where a cause is certain.
    """
    causes = [judge(one.case).cause for one in ranks]
    unsure = [one for one in ranks if _is_unsure(one)]
    if not unsure or any(one is not None and one.confidence == "certain" for one in causes):
        return ranks, []
    runs = _Runs(experiment, list(again), {})
    told = {id(one): runs.confirmed(one) for one in unsure}
    return [told.get(id(one), one) for one in ranks], runs.made


def _is_unsure(rank: Rank) -> bool:
    """Whether something differs that may be chance; what is beyond a floor is not as it was in any other run."""
    case, noise = rank.case, rank.noise
    if case.first is None or case.trajectory is None or rank.placed is None:
        return False
    return not (noise.first is not None and case.first.stage in NUMERIC and case.first.order >= noise.first.order)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs that were made once more, and those that are made as they are needed."""

    experiment: CommandExperiment
    again: list[Recorded]
    fresh: dict[str, Recorded]

    @property
    def made(self) -> list[Recorded]:
        """The runs that were made here."""
        return list(self.fresh.values())

    def confirmed(self, rank: Rank) -> Rank:
        """The rank, or one without what follows the load where that is chance."""
        case, first = rank.case, rank.case.first
        assert rank.placed is not None and case.trajectory is not None and first is not None
        second = next(iter(self._resumed(rank, first.step, 1)), None)
        if second is None or self._repeats(rank, case.trajectory, second):
            return rank
        if rank.noise.first is None and self._never_agrees(rank, first):
            return rank
        case = by_chance(case, first)
        return replace(rank, case=case, noise=with_chance(rank.noise, [case]))

    def _repeats(self, rank: Rank, diff: TraceDiff, second: Trace) -> bool:
        assert rank.placed is not None
        with closing(second.shifted(rank.case.step)) as trace:
            return repeats_itself(rank.placed.trace, trace, diff)

    def _never_agrees(self, rank: Rank, first: Difference) -> bool:
        """Whether every run without a resume agrees up to the difference, and every resumed one differs by then."""
        assert rank.placed is not None and rank.case.trajectory is not None
        case, reference = rank.case, rank.crew.reference
        told = {one.item for one in rank.case.trajectory.differences}

        def apart(trace: Trace) -> list[Difference]:
            diff = compare_traces(reference, trace, first=case.step + 1, last=first.step).without(rank.noise.floor)
            return [one for one in diff.differences if one.order <= first.order]

        # Generators that reach nothing, and what is within a tolerance.
        silent = {one.item for one in apart(rank.placed.trace)} - told

        def parts(trace: Trace, shift: int) -> bool:
            with closing(trace.shifted(shift)) as placed:
                return any(one.item not in silent for one in apart(placed))

        for count in range(1, MORE + 2):  # the next is made only where this one parts too
            resumed = self._resumed(rank, first.step, count)
            if len(resumed) < count or not parts(resumed[-1], case.step):
                return False
        repeats = rank.crew.repeats[: MORE + 1]
        whole = [*repeats, *self._whole(rank, first.step, MORE + 1 - len(repeats))]
        return len(whole) > MORE and not any(parts(one, 0) for one in whole)

    def _resumed(self, rank: Rank, step: int, count: int) -> list[Trace]:
        """So many resumed runs beside the first one that came to a step; fewer where they do not come so far."""
        own = step - rank.case.step
        return self._traces(rank, RESUMED, own, count, lambda name: self.experiment.again({}, {name: own}))

    def _whole(self, rank: Rank, step: int, count: int) -> list[Trace]:
        return self._traces(rank, REFERENCE, step, count, lambda name: self.experiment.again({name: step}, {}))

    def _traces(
        self, rank: Rank, kind: str, step: int, count: int, make: Callable[[str], list[Recorded]]
    ) -> list[Trace]:
        """The traces of runs of a kind that came to a step, as they count; up to `count` more runs are made."""
        found = [
            trace for run in (*self.again, *self.made) if run.name.startswith(kind)
            if (trace := _come_to(rank, run, step)) is not None
        ]  # fmt: skip
        while len(found) < count:
            number = sum(name.startswith(kind) for name in self.fresh)
            name = f"{kind}{ONCE_MORE}" + (f"-{number + 1}" if number else "")
            try:
                (self.fresh[name],) = make(name)
            except OutputError:  # there is no room: what was found stands
                break
            trace = _come_to(rank, self.fresh[name], step)
            if trace is None:
                break
            found.append(trace)
        return found[:count]


def _come_to(rank: Rank, run: Recorded, step: int) -> Trace | None:
    """The trace of a rank in another run, where that recorded the step, as it counts."""
    trace = rank.crew.trace_in(run)
    return trace if trace is not None and (step, STEP) in trace.moments else None

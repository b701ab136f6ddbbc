"""The resume experiment on commands, from its settings to its result."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.errors import RunFailedError, UsageError
from ckptcheck.experiment.commands.plan import CommandExperiment, CommandSettings
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.finding import Compared, Finding, Json, NotJudged, Result
from ckptcheck.progress import Progress
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import Judgement, judge
from ckptcheck.rules.runs.later import Later
from ckptcheck.verdict.asking import Question
from ckptcheck.verdict.cases import held_contracts
from ckptcheck.verdict.divergence import divergence
from ckptcheck.verdict.grounds import settled
from ckptcheck.verdict.left_out import idle_pattern
from ckptcheck.verdict.loads_seen import loads_seen
from ckptcheck.verdict.parts import first_magnitudes
from ckptcheck.verdict.pictures import pictures
from ckptcheck.verdict.scripts.cases import Stopped
from ckptcheck.verdict.scripts.confirming import confirmed
from ckptcheck.verdict.scripts.interrupting import check_interrupted, interruption_of
from ckptcheck.verdict.scripts.measuring import rows_of, why_open
from ckptcheck.verdict.scripts.noise import noise_told
from ckptcheck.verdict.scripts.parts import (
    crossed_part,
    facts,
    name_of,
    notes_part,
    placing_part,
    run_rows,
    settings_part,
    time_of,
)
from ckptcheck.verdict.scripts.rank import Rank, judged_ranks, measured
from ckptcheck.verdict.scripts.saved_later import judged_later, saved_later, saved_part, why_not
from ckptcheck.verdict.scripts.telling import joined, of_rank, with_cause_of_raise, with_loads
from ckptcheck.verdict.stage_strip import Sight
from ckptcheck.verdict.summary import Summary

NOT_FOR_COMMANDS = (
    ("CK609", "what a script saves cannot be left out: whether its saving changes the training is not seen"),
    ("CK613", "gradients that are held over a save are not seen in a script"),
)
"""What no experiment on commands can judge, with the reason."""


def verification(settings: CommandSettings, question: Question, progress: Progress | None) -> Result:
    """Make the runs of two commands, judge them rank by rank, and say what came of it.

    Raises UsageError for commands that cannot be run, RunFailedError where the uninterrupted run does not come to its
    end or trains no step, TraceError where equal runs have unlike processes: exit code 2, not a verdict.
    """
    with CommandExperiment(settings, progress) as experiment, ExitStack() as opened:
        whole = {one.name: one for one in experiment.whole(repeats=0 if question.quick else question.repeats)}
        _check_only(whole)
        measures = not question.quick or question.policy.tolerant
        source, stopped = _stop_and_resume(experiment, whole)
        ranks = judged_ranks(whole, source, stopped, question.policy, opened)
        if len(whole) == 1 and not all(one.case.goes_on_exactly for one in ranks):
            # Only an equal run can tell whether what differs is chance.
            repeat = experiment.one_repeat()
            whole[repeat.name] = repeat
            ranks = judged_ranks(whole, source, stopped, question.policy, opened)
        made = _Made(experiment, question, whole, source, stopped, ranks)
        made.refuse()
        made = replace(made, later=made.saved_later())
        return _confirmed(_measured(made) if measures else made).result()


def _measured(made: "_Made") -> "_Made":
    """The same with the exact differences, where anything differs: both runs are then made once more."""
    ranks, runs = measured(made.ranks, made.experiment, made.question.policy)
    return replace(made, ranks=ranks, again=runs)


def _confirmed(made: "_Made") -> "_Made":
    """The same without what is chance: a difference whose cause is not certain is looked for in another resumed run."""
    ranks, runs = confirmed(made.ranks, made.experiment, made.again)
    return replace(made, ranks=ranks, again=[*made.again, *runs])


def _check_only(whole: dict[str, Recorded]) -> None:
    """Raise UsageError for a glob of --only that nothing has a name for."""
    idle = idle_pattern(trace for one in whole.values() for trace in one.traces)
    if idle is not None:
        raise UsageError(f"--only {idle!r} matches no parameter: names are those of model.named_parameters()")


def _stop_and_resume(experiment: CommandExperiment, whole: dict[str, Recorded]) -> tuple[Recorded, Stopped]:
    """Make the run that is stopped, where no copy of a whole one serves, and the one that is resumed from it."""
    reference, settings = next(iter(whole.values())), experiment.settings
    interrupt = settings.interrupt
    if interrupt is None:
        source = whole.get(experiment.source, reference)
        found, saved = experiment.found(), experiment.saved()
        newest = found.step if found is not None else None
        named = name_of(found, source)
        resumed = experiment.resumed()
        return source, Stopped(experiment.resume_step, newest, saved, reference, resumed, checkpoint=named)
    source = experiment.interrupted()
    check_interrupted(source, reference, interrupt)
    found = experiment.found()
    # Of a checkpoint that was written after the signal, what the resumed run holds tells the step.
    kept = found.step if found is not None else 0
    if found is None and "{ckpt}" in settings.resume:
        resumed = Recorded("resumed", (), "ended", 0)  # there is nothing that it could be given
    else:
        resumed = experiment.resumed()
    left = interruption_of(source, interrupt, kept)
    return source, Stopped(interrupt[1], None, frozenset(), reference, resumed, left, name_of(found, source))


@dataclass(frozen=True, slots=True)
class _Made:
    """The runs of an experiment and what was made of them."""

    experiment: CommandExperiment
    question: Question
    whole: dict[str, Recorded]
    source: Recorded
    stopped: Stopped
    ranks: list[Rank]
    again: list[Recorded] = field(default_factory=list)
    """Runs that were made once more, to measure and to confirm."""
    later: list[Later] | None = None
    """What the runs save after the resume; None where they differ anyway, so that it would say nothing new."""

    def refuse(self) -> None:
        """Raise RunFailedError where nothing explains a death, UsageError for a contract that nothing is under."""
        resumed = self.stopped.resumed
        if resumed.status in ("died", "hung") and not any(_explained(one.case) for one in self.ranks):
            raise RunFailedError(f"the {resumed.name} run {resumed.status}: {resumed.error}", resumed.last_lines)
        idle = next((one for rank in self.ranks for one in self._contracts(rank)[1]), None)
        if idle is not None:
            load = self.ranks[0].case.load
            known = ", ".join(load.left.parameters)[:200] if load is not None else "unknown"
            raise UsageError(f"--freeze {idle!r} matches no parameter; parameters are {known}")

    def saved_later(self) -> list[Later] | None:
        """What both runs save later on, held against each other where nothing else tells the runs apart."""
        equal = all(one.case.goes_on_exactly and one.noise.first is None for one in self.ranks)
        if not equal or self.question.policy.tolerant or any(one.cause for rank in self._over_ranks() for one in rank):
            return None
        return saved_later(self.experiment, [*self.whole.values()], self.stopped.resumed, self.ranks[0].case.step)

    def result(self) -> Result:
        judged = [one for rank in self._over_ranks() for one in rank]
        if self.later is not None:
            known = {one.code for judgement in judged for one in judgement.findings if one.code == "CK603"}
            judged.append(judged_later(self.later, self.question.select, (*self.question.ignore, *known)))
        noises = [one.noise for one in self.ranks]
        question = self.question
        summary = Summary(self._cases(), judged, noises, question, self._reasons())
        result = summary.result(self._environment(), self._parts())
        return settled(result, question.decided, summary.grounds(), question.select, question.ignore)

    def _cases(self) -> list[Case]:
        return [one.case for one in self.ranks]

    def _over_ranks(self) -> list[list[Judgement]]:
        """The judgements of each rank; where there are several ranks, what they share is told by the first."""
        each = [self._judgements(rank) for rank in self.ranks]
        if len(self.ranks) == 1:
            return each
        numbered = [of_rank(one, rank.crew.rank) for rank, found in zip(self.ranks, each, strict=True) for one in found]
        return [joined(numbered)]

    def _judgements(self, rank: Rank) -> list[Judgement]:
        question = self.question
        whole = Case("reference", 0, noise=rank.noise.first, chance=rank.noise.chance, trajectory=_nothing(),
                     saving=(), commands=True)  # fmt: skip
        judged = [judge(one, question.select, question.ignore) for one in (whole, *self._contracts(rank)[0])]
        own = judge(rank.case, question.select, question.ignore)
        own = with_loads(own, self._loads(rank)[0], rank.case.goes_on_exactly)
        return [*judged, with_cause_of_raise(own, rank.case.raised)]

    def _loads(self, rank: Rank) -> tuple[tuple[Finding, ...], tuple[NotJudged, ...]]:
        if rank.placed is None:
            return (), ()
        return loads_seen(rank.placed.trace, self.question.select, self.question.ignore)

    def _contracts(self, rank: Rank) -> tuple[list[Case], list[str]]:
        traces = {self.stopped.whole.name: rank.crew.reference}
        if rank.placed is not None:
            traces[self.stopped.resumed.name] = rank.placed.trace
        return held_contracts(traces, self.question.freeze)

    def _reasons(self) -> list[tuple[str, str]]:
        reasons = list(NOT_FOR_COMMANDS)
        if not all(one.noise.repeated for one in self.ranks):
            reasons.append(("CK611", "no repeat was made (--quick)"))
        if self.stopped.interruption is None:
            reasons.append(("CK615", "no run was interrupted by a signal (--interrupt)"))
        if self.later is not None and (why := why_not(self.later, self.ranks[0].case.step)):
            reasons.append(("CK610", why))
        reasons += [("CK607", why_open(one.left_open)) for one in self.ranks if one.left_open]
        reasons += [("CK607", f"rank {one.crew.rank}: no step after the load was recorded whole in both runs (--every)")
                    for one in self.ranks
                    if one.case.trajectory is not None and not one.case.trajectory.steps
                    and self.experiment.settings.every > 1]  # fmt: skip
        reasons += [("CK601", f"rank {one.crew.rank}: {_why_no_load(self.experiment.settings)}")
                    for one in self.ranks
                    if one.placed is not None and one.placed.trace.steps and one.case.load is None]  # fmt: skip
        return reasons

    def _environment(self) -> dict[str, Json]:
        header = self.ranks[0].crew.reference.header
        return {**facts(header), "offline": not self.experiment.settings.online}

    def _parts(self) -> dict[str, Json]:
        policy = self.question.policy
        rows = self._rows()
        reference = self.ranks[0].crew.reference
        step = self.ranks[0].case.step
        return {
            **settings_part(self.experiment.settings),
            "checkpoint": self.stopped.checkpoint,
            "resume_at": [self.stopped.after],
            "resumed_from": self.experiment.source,
            "set": dict(self.experiment.environment),
            "policy": policy.part,
            "ranks": len(self.ranks),
            "alignment": placing_part([(one.crew.rank, one.placed) for one in self.ranks]),
            "saved_later": saved_part(self.later or ()),
            "trajectory": rows,
            "trajectory_left_out": sum(one.case.trajectory.left_out for one in self.ranks if one.case.trajectory),
            "magnitudes": first_magnitudes(rows),
            "divergence": [
                divergence(one.case, one.crew.rank if len(self.ranks) > 1 else None)
                for one in self.ranks
                if not one.case.goes_on_exactly
            ],
            **pictures(self._sights(), policy.state_exact),
            "crossed": crossed_part(reference, step),
            "noise": self._noise(),
            "runs": run_rows(self._runs()),
            "notes": notes_part([*self.whole.values(), self.source, self.stopped.resumed]),
        }

    def _sights(self) -> list[Sight]:
        several = len(self.ranks) > 1
        return [
            Sight(
                one.case,
                one.crew.reference,
                one.placed.trace if one.placed is not None else None,
                one.noise,
                self.question.freeze,
                one.crew.rank if several else None,
            )
            for one in self.ranks
        ]

    def _noise(self) -> dict[str, Json]:
        """The noise of the rank whose equal runs part first."""
        noisy = [one for one in self.ranks if one.noise.first is not None]
        one = min(noisy, key=lambda rank: rank.noise.first.order if rank.noise.first else (), default=self.ranks[0])
        number = one.crew.rank if len(self.ranks) > 1 else None
        return noise_told(number, one.noise, one.case, len(one.crew.repeats), self.question.policy)

    def _runs(self) -> list[Recorded]:
        """Every run that was made, in order."""
        runs = {one.name: one for one in (*self.whole.values(), self.source)}
        made = [self.stopped.resumed] if self.stopped.resumed.words else []
        return [*runs.values(), *made, *self.again]

    def _rows(self) -> list[Json]:
        """The trajectory of every rank; that of the rank which differs first comes first."""
        each = [(one.crew.rank, rows_of(one.case, one.measure)) for one in self.ranks]
        if len(each) == 1:
            return each[0][1]
        each.sort(key=lambda one: time_of(one[1]))
        return [{**row, "run": f"{row['run']}, rank {rank}", "rank": rank}
                for rank, rows in each for row in rows if isinstance(row, dict)]  # fmt: skip


def _explained(case: Case) -> bool:
    """Whether what was loaded is a reason for the end of a run that a signal or the time limit ended."""
    cause = judge(case).cause
    return cause is not None and cause.code != "CK610"


def _why_no_load(settings: CommandSettings) -> str:
    if settings.every > 1:
        return f"with --every {settings.every} the step of the checkpoint or the one after it was not recorded"
    return "the uninterrupted run made no step after the checkpoint, so that its state there is not known whole"


def _nothing() -> TraceDiff:
    return TraceDiff((), Compared(), ())

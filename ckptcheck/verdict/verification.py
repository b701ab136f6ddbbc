"""The resume experiment from its settings to its result."""

from dataclasses import dataclass

from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.errors import TargetError
from ckptcheck.experiment.noise import Noise
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed, Settings, failed
from ckptcheck.finding import Compared, Json, Result
from ckptcheck.progress import Progress
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import judge
from ckptcheck.verdict.asking import Question
from ckptcheck.verdict.bisection import bisected
from ckptcheck.verdict.cases import (
    breach_cases,
    case_of,
    saving_of,
)
from ckptcheck.verdict.course import course_of
from ckptcheck.verdict.crossed import crossed
from ckptcheck.verdict.divergence import divergence
from ckptcheck.verdict.equal_runs import (
    confirmed,
    floor_of_target,
    noise_part,
    repeat_names,
    with_chance,
    with_what_is_noisy,
)
from ckptcheck.verdict.grounds import settled
from ckptcheck.verdict.in_a_row import held_against, in_a_row_part, told_of
from ckptcheck.verdict.parts import first_magnitudes, run_rows, trajectory_rows
from ckptcheck.verdict.pictures import pictures
from ckptcheck.verdict.scouting import picked_points
from ckptcheck.verdict.stage_strip import Sight
from ckptcheck.verdict.summary import Summary


def verification(settings: Settings, question: Question, progress: Progress | None) -> Result:
    """Make the runs, judge them, and say what came of it.

    Raises TargetError and RunFailedError where the reference cannot be made: exit code 2, not a verdict.
    """
    with Experiment(settings, progress) as experiment:
        repeats = _make_whole(experiment, 0 if question.quick else question.repeats)
        resumed = _resume(experiment)
        noise = floor_of_target(experiment, repeats, resumed)
        cases: list[Case] = []
        missing: list[str] = []
        against: dict[str, str] = {}
        for run in resumed:
            left = against[run.name] = held_against(run, {one.run: one for one in cases})
            case, why = case_of(experiment, run, noise, question.policy, against=left)
            case = confirmed(experiment, run, case, judge(case).cause, noise, against=left)
            cases.append(case)
            missing.append(why)
            if run.outcome.status in ("died", "hung") and _nothing_explains(case):
                raise failed(run.outcome)
        held = breach_cases(experiment, resumed, _contracts(experiment, question))
        made = _Made(experiment, question, with_chance(noise, cases), resumed, cases, missing, held, against)
        made.refuse_idle_contracts()
        summary = made.summary()
        result = made.result(summary)
        if question.bisect:
            result = bisected(experiment, made.noise, resumed, cases, result)
        return settled(result, question.decided, summary.grounds(), question.select, question.ignore)


def _make_whole(experiment: Experiment, repeats: int) -> int:
    """Make the reference and its repeats; how many of these there are.

    Where points are to be picked, a repeat comes first and shows where: one is then made whatever was asked for, as it
    serves as a repeat as well.
    """
    if not experiment.settings.scouts:
        experiment.run_whole([REFERENCE, *repeat_names(0, repeats)])
        return repeats
    (scout,) = repeat_names(0, 1)
    experiment.run_whole([scout])
    picked = picked_points(course_of(experiment.traces[scout]))
    experiment.save_after(sorted({*experiment.settings.resume_at, *picked}))
    experiment.run_whole([REFERENCE, *repeat_names(1, repeats - 1)])
    return max(1, repeats)


def _nothing_explains(case: Case) -> bool:
    """Whether what was loaded is no reason for the end of a run that a signal or the time limit ended."""
    cause = judge(case).cause
    return cause is None or cause.code == "CK610"


def _resume(experiment: Experiment) -> list[Resumed]:
    """Every resume point from the reference, then a second resume in a row from what the first resumed run saved."""
    points = experiment.settings.resume_at
    resumed = experiment.resume([(REFERENCE, step) for step in points], save_later=len(points) > 1)
    if len(points) > 1 and resumed[0].outcome.status == "ended":
        resumed += experiment.resume([(resumed[0].name, points[1])])
    return resumed


def _contracts(experiment: Experiment, question: Question) -> dict[str, str]:
    """The freeze contracts that the target declares and those that were asked for, which win."""
    declared = experiment.outcomes[REFERENCE].facts.get("freeze", {})
    return {**declared, **question.freeze}


@dataclass(frozen=True, slots=True)
class _Made:
    """The runs of an experiment and what was made of them."""

    experiment: Experiment
    question: Question
    noise: Noise
    resumed: list[Resumed]
    cases: list[Case]
    missing: list[str]
    held: tuple[list[Case], list[str]]
    """A case for each run that contracts were held against, and the patterns that matched nothing."""
    against: dict[str, str]
    """For each resumed run by name, the run that its steps were held against."""

    def refuse_idle_contracts(self) -> None:
        """Raise TargetError for a freeze pattern that no parameter matches: a contract on nothing always holds."""
        if idle := self.held[1]:
            known = ", ".join(self.cases[0].load.left.parameters) if self.cases[0].load else ""
            raise TargetError(
                f"the freeze pattern {idle[0]!r} matches no parameter; parameters are {known[:200] or 'unknown'}"
            )

    def summary(self) -> Summary:
        """The judgements of all cases."""
        question = self.question
        judged = [
            told_of(judge(case, question.select, question.ignore), case, self.against.get(case.run, REFERENCE))
            for case in self._all_cases()
        ]
        return Summary(self.cases, judged, [self.noise], question, self._reasons())

    def result(self, summary: Summary) -> Result:
        """What came of it, before the project has its say."""
        return summary.result(self._environment(), self._parts())

    def _all_cases(self) -> list[Case]:
        saving = saving_of(self.experiment, self.noise)
        whole = with_what_is_noisy(
            Case(REFERENCE, 0, saving=saving, noise=self.noise.first, chance=self.noise.chance, trajectory=_nothing()),
            self.experiment,
            self.noise,
        )
        return [whole, *self.held[0], *self.cases]

    def _reasons(self) -> list[tuple[str, str]]:
        notes = []
        if not self.noise.repeated:
            notes += [(code, "no repeat without saving was made (--quick)") for code in ("CK609", "CK611")]
        devices = self.experiment.settings.devices
        if devices[0] != devices[1] and not self.question.policy.tolerant:
            notes.append(
                ("CK606", f"{devices[0]} and {devices[1]} never agree to the bit: steps after the load need --rtol")
            )
        return notes

    def _environment(self) -> dict[str, Json]:
        facts = {key: value for key, value in self.experiment.outcomes[REFERENCE].facts.items() if key != "freeze"}
        settings = self.experiment.settings
        return {**facts, "digest": settings.digest, "seed": settings.seed, "resume_device": settings.devices[1]}

    def _parts(self) -> dict[str, Json]:
        settings = self.experiment.settings
        rows = [row for case, why in zip(self.cases, self.missing, strict=True) for row in trajectory_rows(case, why)]
        policy = self.question.policy
        return {
            "target": settings.target,
            "steps": settings.steps,
            "resume_at": list(settings.resume_at),
            "policy": policy.part,
            "trajectory": rows,
            "trajectory_left_out": sum(one.trajectory.left_out for one in self.cases if one.trajectory is not None),
            "magnitudes": [row for case, why in zip(self.cases, self.missing, strict=True)
                           for row in first_magnitudes(trajectory_rows(case, why))],
            "divergence": [divergence(case) for case in self.cases if not case.goes_on_exactly],
            **pictures(self._sights(), policy.state_exact),
            "crossed": crossed(self.experiment.traces[REFERENCE], settings.resume_at,
                               any(one.source != REFERENCE for one in self.resumed))
                       | {"in_a_row": in_a_row_part(self.resumed, self.against)},
            "noise": noise_part(self.noise, self.cases),
            "runs": run_rows(self.experiment.outcomes.values()),
        }  # fmt: skip

    def _sights(self) -> list[Sight]:
        traces, contracts = self.experiment.traces, _contracts(self.experiment, self.question)
        return [
            Sight(case, traces[self.against.get(run.name, REFERENCE)], run.trace, self.noise, contracts)
            for run, case in zip(self.resumed, self.cases, strict=True)
        ]


def _nothing() -> TraceDiff:
    return TraceDiff((), Compared(), ())

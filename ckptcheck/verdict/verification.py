"""The resume experiment from its settings to its result."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ckptcheck.comparison.states import StateDiff
from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.errors import TargetError
from ckptcheck.experiment.noise import Noise, assess
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed, Settings, failed
from ckptcheck.finding import Cause, Compared, Finding, Json, NotJudged, Place, Result, Verdict
from ckptcheck.progress import Progress
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import Judgement, judge
from ckptcheck.rules.runs.table import ROOTS
from ckptcheck.state.stages import LOAD
from ckptcheck.trace.file import Trace
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.cases import (
    breach_cases,
    case_of,
    needs_repeat,
    saving_of,
)
from ckptcheck.verdict.parts import crossed, first_magnitudes, run_rows, trajectory_rows

AFTER_A_SAVE: Final = frozenset({"CK205", "CK603", "CK613"})
"""Codes of a load that merely follow where saving perturbed the run."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of an experiment beside its settings."""

    quick: bool = False
    repeats: int = 1
    policy: Policy = field(default_factory=Policy)
    freeze: Mapping[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ("CK",)
    ignore: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    """Codes by prefix that must be judged."""


def verification(settings: Settings, question: Question, progress: Progress | None) -> Result:
    """Make the runs, judge them, and say what came of it.

    Raises TargetError and RunFailedError where the reference cannot be made: exit code 2, not a verdict.
    """
    with Experiment(settings, progress) as experiment:
        repeats = 0 if question.quick else question.repeats
        experiment.run_whole([REFERENCE, *_repeat_names(0, repeats)])
        resumed = _resume(experiment)
        noise = _noise(experiment, repeats, resumed)
        cases, missing = [], []
        for run in resumed:
            case, why = case_of(experiment, run, noise, question.policy)
            cases.append(case)
            missing.append(why)
            if run.outcome.status in ("died", "hung") and _nothing_explains(case):
                raise failed(run.outcome)
        summary = _Summary(experiment, question, noise, resumed, cases, missing)
        summary.refuse_idle_contracts()
        return summary.result()


def _nothing_explains(case: Case) -> bool:
    """Whether what was loaded is no reason for the end of a run that a signal or the time limit ended."""
    cause = judge(case).cause
    return cause is None or cause.code == "CK610"


def _repeat_names(done: int, more: int) -> list[str]:
    return ["repeat" if place == 0 else f"repeat-{place + 1}" for place in range(done, done + more)]


def _resume(experiment: Experiment) -> list[Resumed]:
    """Every resume point from the reference, then a second resume in a row from what the first resumed run saved."""
    points = experiment.settings.resume_at
    resumed = experiment.resume([(REFERENCE, step) for step in points], save_later=len(points) > 1)
    if len(points) > 1 and resumed[0].outcome.status == "ended":
        resumed += experiment.resume([(resumed[0].name, points[1])])
    return resumed


def _noise(experiment: Experiment, repeats: int, resumed: list[Resumed]) -> Noise:
    """Hold equal runs against each other; more of them where something differs and only they can tell why."""
    if not repeats and (needs_repeat(experiment) or _anything_differs(experiment, resumed)):
        experiment.run_whole(_repeat_names(0, 1))
        repeats = 1
    noise = assess(experiment.traces[REFERENCE], _repeats(experiment, repeats))
    if repeats == 1 and noise.floor:
        experiment.run_whole(_repeat_names(1, 1))
        noise = assess(experiment.traces[REFERENCE], _repeats(experiment, 2))
    return noise


def _repeats(experiment: Experiment, count: int) -> list[Trace]:
    return [experiment.traces[name] for name in _repeat_names(0, count)]


def _anything_differs(experiment: Experiment, resumed: list[Resumed]) -> bool:
    quiet = Noise({}, None, {}, None, repeated=False)
    cases = [case_of(experiment, run, quiet, Policy(), measure=False)[0] for run in resumed]
    return any(not case.goes_on_exactly for case in cases)


@dataclass(frozen=True, slots=True)
class _Summary:
    """Judgements of every part of an experiment, on their way to one result."""

    experiment: Experiment
    question: Question
    noise: Noise
    resumed: list[Resumed]
    cases: list[Case]
    missing: list[str]

    def refuse_idle_contracts(self) -> None:
        """Raise TargetError for a freeze pattern that no parameter matches: a contract on nothing always holds."""
        idle = breach_cases(self.experiment, self.resumed, self._freeze())[1]
        if idle:
            known = ", ".join(self.cases[0].load.left.parameters) if self.cases[0].load else ""
            raise TargetError(
                f"the freeze pattern {idle[0]!r} matches no parameter; parameters are {known[:200] or 'unknown'}"
            )

    def result(self) -> Result:
        judged = [self._judge(case) for case in self._all_cases()]
        guilty = [one for one in judged if one.cause is not None]
        first = min(guilty, key=_time, default=None)
        cause = first.cause if first else None
        place = first.place if first else next((one.place for one in judged if one.place is not None), None)
        compared = self._compared()
        diverges = any(case.first is not None or case.raised is not None for case in self.cases)
        verdict = Verdict.FAIL if first or diverges else Verdict.PASS
        findings = _once(finding for one in ([first] if first else []) + judged for finding in one.findings)
        if cause is not None and cause.code == "CK609":
            # The run that was saved had left its own course: what the resumed one lacks of it says nothing more.
            findings = tuple(one for one in findings if one.code in ROOTS or _stands_beside_a_save(one))
        noise = self.noise.first
        if (
            verdict is Verdict.PASS
            and noise is not None
            and not (self.question.policy.state_exact and self.noise.only_numeric)
        ):
            verdict = Verdict.INCONCLUSIVE
            told = next((one for one in findings if one.code == "CK611"), None)
            cause, place = Cause("CK611", "certain"), told.where if told else None
        if verdict is Verdict.PASS and not (compared.steps and compared.parameters):
            verdict = Verdict.INCONCLUSIVE
        not_judged, required = self._not_judged(judged, compared), self.question.require
        if verdict is Verdict.PASS and required and any(one.code.startswith(required) for one in not_judged):
            verdict = Verdict.FAIL
        return Result(
            command="verify",
            verdict=verdict,
            compared=compared,
            first_divergence=place,
            cause=cause,
            findings=findings,
            not_judged=not_judged,
            environment=self._environment(),
            parts=self._parts(),
        )

    def _all_cases(self) -> list[Case]:
        saving = saving_of(self.experiment, self.noise)
        whole = Case(REFERENCE, 0, saving=saving, noise=self.noise.first, trajectory=_nothing())
        broken, _ = breach_cases(self.experiment, self.resumed, self._freeze())
        return [whole, *broken, *self.cases]

    def _judge(self, case: Case) -> Judgement:
        return judge(case, self.question.select, self.question.ignore)

    def _freeze(self) -> dict[str, str]:
        declared = self.experiment.outcomes[REFERENCE].facts.get("freeze", {})
        return {**declared, **self.question.freeze}

    def _compared(self) -> Compared:
        parts = [case.trajectory.compared for case in self.cases if case.trajectory is not None]
        parts += [_compared_at_load(case.load) for case in self.cases if case.load is not None]
        return Compared(
            steps=sum(one.steps for one in parts),
            parameters=max((one.parameters for one in parts), default=0),
            state_tensors=max((one.state_tensors for one in parts), default=0),
            bytes=sum(one.bytes for one in parts),
        )

    def _not_judged(self, judged: list[Judgement], compared: Compared) -> tuple[NotJudged, ...]:
        open_codes: dict[str, NotJudged] = {}
        # A rule was judged if any case had what it needs.
        settled = [{one.code for one in judgement.not_judged} for judgement in judged]
        for judgement in judged:
            for one in judgement.not_judged:
                if all(one.code in codes for codes in settled):
                    open_codes.setdefault(one.code, one)
        notes = [NotJudged(code, why) for code, why in self._reasons(compared)]
        return tuple(sorted((*notes, *(one for code, one in open_codes.items() if code not in {n.code for n in notes})),
                            key=lambda one: one.code))  # fmt: skip

    def _reasons(self, compared: Compared) -> list[tuple[str, str]]:
        notes = []
        if not self.noise.repeated:
            notes += [(code, "no repeat without saving was made (--quick)") for code in ("CK609", "CK611")]
        noise = self.noise.first
        if noise is not None:
            notes.append(
                ("CK607", f"equal runs differ from step {noise.step}, stage {noise.stage} on: not judged bitwise")
            )
        if noise is None:
            noisy = sorted({(item.kind, item.name) for item in self.noise.floor})
            told = {
                "rng": ("CK603", "nothing seeds this generator"),
                "extra": ("CK601", "it is not a part of the training"),
            }
            notes += [(told[kind][0], f"{name} differs between equal runs: {told[kind][1]}") for kind, name in noisy]
        devices = self.experiment.settings.devices
        if devices[0] != devices[1] and not self.question.policy.tolerant:
            notes.append(
                ("CK606", f"{devices[0]} and {devices[1]} never agree to the bit: steps after the load need --rtol")
            )
        if not compared.parameters:
            notes.append(("CK601", "no parameter was compared"))
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
            "policy": {"name": policy.name, "rtol": policy.rtol, "atol": policy.atol},
            "trajectory": rows,
            "trajectory_left_out": sum(one.trajectory.left_out for one in self.cases if one.trajectory is not None),
            "magnitudes": [row for case, why in zip(self.cases, self.missing, strict=True)
                           for row in first_magnitudes(trajectory_rows(case, why))],
            "crossed": crossed(self.experiment.traces[REFERENCE], settings.resume_at, settings.steps,
                               any(one.source != REFERENCE for one in self.resumed)),
            "runs": run_rows(self.experiment.outcomes.values()),
        }  # fmt: skip


def _stands_beside_a_save(one: Finding) -> bool:
    """Whether a finding is a fault of the load in its own right, where saving has perturbed the run."""
    return one.where.stage == LOAD and one.code not in AFTER_A_SAVE and not one.evidence.get("without_effect")


def _compared_at_load(load: StateDiff) -> Compared:
    left, right = load.left, load.right
    tensors = [
        (place, name, key)
        for place, (one, other) in enumerate(zip(left.optimizers, right.optimizers, strict=False))
        for name, entries in one.state.items()
        for key, entry in entries.items()
        if entry.spec is not None and key in other.state.get(name, {})
    ]
    parameters = left.parameters.keys() & right.parameters.keys()
    nbytes = sum(left.parameters[name].entry.nbytes for name in parameters)
    nbytes += sum(left.optimizers[place].state[name][key].nbytes for place, name, key in tensors)
    return Compared(0, len(parameters), len(tensors), nbytes)


def _nothing() -> TraceDiff:
    return TraceDiff((), Compared(), ())


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings without repeats: several runs may show the same."""
    seen: dict[tuple[str, Place], Finding] = {}
    for one in findings:
        seen.setdefault((one.code, one.where), one)
    return tuple(seen.values())


def _time(one: Judgement) -> tuple[int, int]:
    saving_first = 0 if one.cause is not None and one.cause.code == "CK609" else 1
    return saving_first, one.place.step if one.place is not None and one.place.step is not None else 0

"""`verify --bisect`: the cause proved by an experiment, and the smallest resume point that shows it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ckptcheck.comparison.traces import TraceDiff, compare_traces
from ckptcheck.experiment.bisection import Healing, smallest_failing, smallest_healing
from ckptcheck.experiment.noise import Noise
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed
from ckptcheck.experiment.sections import KINDS, Overlay, Section, sections_of_json
from ckptcheck.finding import Json, Result, Verdict
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.table import ROOTS
from ckptcheck.verdict.parts import run_rows
from ckptcheck.verdict.proof import CODES, in_part, with_proof, without_state
from ckptcheck.verdict.sections_apart import sections_apart

MAX_RUNS: Final = 48
"""How many runs a bisection may make."""


class _StoppedError(Exception):
    """The bisection cannot go on; its text says why."""


def bisected(
    experiment: Experiment, noise: Noise, resumed: Sequence[Resumed], cases: Sequence[Case], result: Result
) -> Result:
    """The result with its part "bisection", and its cause proved where the proof bears it out."""
    chosen = _refusal(experiment, noise, resumed, cases, result)
    if isinstance(chosen, str):
        return _with_part(result, {"proved": False, "reason": chosen, "runs": 0, "trials": []})
    run, case = chosen
    bisection = _Bisection(experiment, noise, run, case)
    result, part = bisection.sections(result)
    part |= bisection.points()
    part |= {"resume_at": case.step, "runs": bisection.runs, "trials": bisection.rows}
    return _with_part(replace(result, parts={**result.parts, "runs": run_rows(experiment.outcomes.values())}), part)


def _with_part(result: Result, part: dict[str, Json]) -> Result:
    return replace(result, parts={**result.parts, "bisection": part})


def _refusal(
    experiment: Experiment, noise: Noise, resumed: Sequence[Resumed], cases: Sequence[Case], result: Result
) -> str | tuple[Resumed, Case]:
    """The resumed run to bisect, or why there is none."""
    if noise.first is not None:
        where = f"step {noise.first.step}, stage {noise.first.stage}"
        return f"equal runs differ from {where} on: a bisection needs a training that repeats itself"
    if result.verdict is not Verdict.FAIL:
        return "no resumed run diverges: there is nothing to bisect"
    if result.cause is not None and result.cause.code in ROOTS:
        return f"{result.cause.code} is shown within one run, resumed or not: nothing that a load puts back can heal it"
    if len({device.split(":")[0] for device in experiment.settings.devices}) > 1:
        return "two devices never agree to the bit: a bisection needs both runs on one"
    failing = [(run, case) for run, case in zip(resumed, cases, strict=True) if not case.goes_on_exactly]
    if not failing:
        return "no resumed run diverges: there is nothing to bisect"
    first = next(((run, case) for run, case in failing if run.source == REFERENCE), None)
    if first is None:
        return "only a second resume in a row diverges: bisected is what the uninterrupted run has saved"
    if first[1].load is None:
        return f"the load itself raised, so that nothing can be put back after it: {first[1].raised}"
    return first


@dataclass(slots=True)
class _Bisection:
    """The runs that a bisection makes, each overlay once, and what came of them."""

    experiment: Experiment
    noise: Noise
    run: Resumed
    case: Case
    runs: int = 0
    rows: list[Json] = field(default_factory=list)
    _healed: dict[tuple[frozenset[Section], frozenset[Section]], bool] = field(default_factory=dict)
    _as_whole: dict[tuple[frozenset[Section], frozenset[Section]], bool] = field(default_factory=dict)
    _remaining: str = ""
    """The run with everything put back, where that did not heal it."""
    _kept: Path = Path()
    _whole: tuple[Section, ...] = ()
    _saved: dict[int, str] = field(default_factory=dict)

    def sections(self, result: Result) -> tuple[Result, dict[str, Json]]:
        """The smallest set of sections that heals."""
        part: dict[str, Json] = {"proved": False, "sections": [], "sufficient": False, "necessary": False}
        try:
            self._keep()
            code = result.cause.code if result.cause is not None else ""
            apart = sections_apart(self._load, self._whole)
            likely = sorted(apart, key=lambda one: (code not in CODES[one.kind], one.kind == "gradients",
                                                    KINDS.index(one.kind)))  # fmt: skip
            found = smallest_healing(self._heal, self._whole, likely, apart)
            if found.sections is None and likely and self._eases():
                eased = smallest_healing(self._ease, self._whole, likely, apart)
                return self._told_in_part(result, part, eased)
        except _StoppedError as stopped:
            return result, part | {"reason": str(stopped)}
        finally:
            if self._remaining:
                self.experiment.forget(self._remaining)
        return self._told(result, part, found)

    @property
    def _load(self) -> Any:
        assert self.case.load is not None
        return self.case.load

    def _keep(self) -> None:
        """Make the reference once more with its state kept, and saving after step 1 too if that does no harm."""
        trouble = ""
        for saves in ([1], []):
            self._count(1)
            name = f"bisect-kept-{self.runs}"
            trouble = self._kept_by(name, saves)
            if not trouble:
                self._saved = dict.fromkeys(saves, name)
                return
        raise _StoppedError(trouble)

    def _kept_by(self, name: str, saves: Sequence[int]) -> str:
        """Make that run; why it is of no use, "" where it took the course of the first."""
        outcome, self._kept = self.experiment.keep(name, saves, self.case.step)
        if outcome.status != "ended":
            return f"the state could not be kept: {outcome.error} ({outcome.place})"
        if self._diff(name, 1).first is not None:
            return "made once more with its state kept, the uninterrupted run took another course"
        self._whole = sections_of_json(outcome.facts["kept"])
        return ""

    def _diff(self, name: str, first: int) -> TraceDiff:
        """What differs between the reference and a run from step `first` on, without the noise floor."""
        traces = self.experiment.traces
        return compare_traces(traces[REFERENCE], traces[name], first=first).without(self.noise.floor)

    def _heal(self, overlays: Sequence[Overlay]) -> list[bool]:
        """Make a run for each overlay that was not tried yet, side by side; whether each goes on exactly."""
        new = {_key(one): one for one in overlays if _key(one) not in self._healed}
        named = {f"bisect-{self.runs + place + 1}": one for place, one in enumerate(new.values())}
        self._count(len(named))
        for trial in self.experiment.overlaid(self.case.step, named, self._kept) if named else ():
            overlay = named[trial.name]
            healed, row = self._judged(trial)
            self._healed[_key(overlay)] = healed
            self.rows.append({**self._overlaid(overlay), "healed": healed, **row})
            if not self._healed[_key(Overlay(self._whole))]:
                self._remaining = self._remaining or trial.name  # everything is tried first
                self._as_whole[_key(overlay)] = self._goes_as(self._remaining, trial)
            if trial.name != self._remaining:
                self.experiment.forget(trial.name)
        return [self._healed[_key(one)] for one in overlays]

    def _ease(self, overlays: Sequence[Overlay]) -> list[bool]:
        """For each overlay, whether the run goes on as with everything put back, which did not heal it."""
        self._heal(overlays)
        return [self._as_whole[_key(one)] for one in overlays]

    def _goes_as(self, name: str, run: Resumed) -> bool:
        """Whether a resumed run takes the course of another, step by step and to the same end."""
        traces = self.experiment.traces
        if run.name not in traces or name not in traces or run.outcome.status != "ended":
            return False
        diff = compare_traces(traces[name], traces[run.name], first=run.step + 1).without(self.noise.floor)
        return diff.first is None and not (diff.left_only or diff.right_only)

    def _eases(self) -> bool:
        """Whether everything put back leads to another course, which parts from the uninterrupted run no sooner."""
        first = self.case.first
        if first is None or not self._as_whole.get(_key(Overlay(self._whole))):
            return False
        remains = self._diff(self._remaining, self.case.step + 1).first
        later = remains is not None and remains.order >= first.order
        return later and not self._goes_as(self._remaining, self.run)

    def _judged(self, trial: Resumed) -> tuple[bool, dict[str, Json]]:
        """Whether a run goes on exactly, and where not."""
        outcome = trial.outcome
        raised = f"{outcome.error} ({outcome.place})" if outcome.status != "ended" else None
        if trial.trace is None:
            return False, {"first_divergence": None, "raised": raised}
        diff = self._diff(trial.name, trial.step + 1)
        first, whole = diff.first, not (diff.left_only or diff.right_only)
        place: Json = None
        if first is not None:
            item = {"parameter": first.item.name} if first.item.kind in ("param", "grad", "state") else {}
            place = {"step": first.step, "stage": first.stage, **item}
        told: dict[str, Json] = {"first_divergence": place}
        return first is None and raised is None and whole, told | ({"raised": raised} if raised else {})

    def _overlaid(self, overlay: Overlay) -> dict[str, Json]:
        everything = set(overlay.put) == set(self._whole)
        put: list[Json] = ["everything"] if everything else [one.text for one in overlay.put]
        return {"overlaid": put, "left_out": [one.text for one in overlay.but]}

    def _told(self, result: Result, part: dict[str, Json], found: Healing) -> tuple[Result, dict[str, Json]]:
        if found.sections is None:
            first = self._first_row()
            if first.get("first_divergence") is None and first.get("raised"):
                return result, part | {"reason": f"with everything put back the run still fails: {first['raised']}"}
            said = "no recorded state heals the run: the fault lies in code, or in state that Run does not declare"
            result, other = without_state(result, said)
            return result, part | {"reason": _joined(said, other)}
        part |= {"sections": [one.text for one in found.sections], "sufficient": True, "necessary": found.necessary}
        words = [one.words for one in found.sections]
        if not found.necessary:
            said = f"putting back {_listed(words)} heals the run, and so does everything else without it"
            return result, part | {"reason": said}
        if len(words) == 1:
            said = f"putting back {words[0]} alone heals the run; everything else put back without it does not"
        else:
            said = f"putting back {_listed(words)} heals the run; with any one of them left out nothing does"
        result, other = with_proof(result, found.sections, said)
        return result, part | {"proved": True, "reason": _joined(said, other)}

    def _told_in_part(self, result: Result, part: dict[str, Json], found: Healing) -> tuple[Result, dict[str, Json]]:
        """What is said where sections heal what the load broke, and something else makes the run diverge later."""
        place = self._first_row().get("first_divergence")
        assert found.sections is not None and isinstance(place, dict)
        words = _listed([one.words for one in found.sections])
        since = f"from step {place['step']} on, stage {place['stage']}"
        part |= {"sections": [one.text for one in found.sections], "necessary": found.necessary, "remains": place}
        if not found.necessary:
            said = f"putting back {words} heals in part, and so does everything else without it"
            return result, part | {"reason": f"{said}; something else remains {since}"}
        healed = f"putting back {words} removes the divergence that the load brings"
        result, borne_out = in_part(result, found.sections, healed)
        said = (
            f"{healed}{borne_out}; something else remains: {since}, the run differs all the same, and no recorded "
            "state explains that: a second fault, in code or in state that Run does not declare"
        )
        return result, part | {"reason": said}

    def _first_row(self) -> dict[str, Json]:
        row = self.rows[0]
        assert isinstance(row, dict)
        return row

    def points(self) -> dict[str, Json]:
        """The smallest resume point that fails, and the one below it, which passes; None for none below."""
        if self.case.step == 1:
            return {"smallest_resume_at": 1, "passes_at": None}
        try:
            fails_at, passes_at = smallest_failing(self.case.step, self._save_at, self._fails_at)
        except _StoppedError as stopped:
            return {"smallest_resume_at": None, "passes_at": None, "points_reason": str(stopped)}
        return {"smallest_resume_at": fails_at, "passes_at": passes_at or None}

    def _save_at(self, points: Sequence[int]) -> None:
        new = [one for one in points if one not in self._saved]
        if not new:
            return
        self._count(1)
        name = f"bisect-saves-{self.runs}"
        outcome = self.experiment.save_at(name, new)
        if outcome.status != "ended":
            raise _StoppedError(f"the run that saves after steps {new} did not end: {outcome.error} ({outcome.place})")
        if self._diff(name, 1).first is not None:
            raise _StoppedError(f"saving after steps {new} changes what is trained (CK609)")
        self._saved |= dict.fromkeys(new, name)

    def _fails_at(self, step: int) -> bool:
        self._count(1)
        [trial] = self.experiment.resume([(self._saved[step], step)])
        healed = self._judged(trial)[0]
        self.experiment.forget(trial.name)
        return not healed

    def _count(self, more: int) -> None:
        if self.runs + more > MAX_RUNS:
            raise _StoppedError(f"stopped after {self.runs} runs: a bisection makes at most {MAX_RUNS}")
        self.runs += more


def _key(overlay: Overlay) -> tuple[frozenset[Section], frozenset[Section]]:
    return frozenset(overlay.put), frozenset(overlay.but)


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _joined(said: str, other: str) -> str:
    return f"{said}; {other}" if other else said

"""Judgements of every part of a resume experiment, on their way to one result: what targets and commands share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.states import StateDiff
from ckptcheck.experiment.floor import Floor
from ckptcheck.experiment.noise import FLOOR_FACTOR, NUMERIC, Noise
from ckptcheck.finding import Cause, Compared, Finding, Json, NotJudged, Place, Result, Severity, Verdict
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import Judgement, time_of
from ckptcheck.rules.runs.table import ROOTS
from ckptcheck.rules.words import names
from ckptcheck.state.stages import LOAD, STAGE_ORDER
from ckptcheck.verdict.asking import Question
from ckptcheck.verdict.demanded import demanded
from ckptcheck.verdict.grounds import Grounds, grounds_of

AFTER_A_SAVE: Final = frozenset({"CK205", "CK603", "CK613"})
"""Codes of a load that merely follow where saving perturbed the run."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of an experiment.

    Attributes:
        cases: those of the resumed runs, which count what was compared.
        judged: the judgements of every case, of these and others.
        noises: how far equal runs agree, one for each rank.
        question: what was asked.
        reasons: (code, why it was not judged), beside what the judgements say.
    """

    cases: Sequence[Case]
    judged: Sequence[Judgement]
    noises: Sequence[Noise]
    question: Question
    reasons: Sequence[tuple[str, str]]

    def result(self, environment: Mapping[str, Json], parts: Mapping[str, Json]) -> Result:
        """The verdict with its cause, the first in time of all cases."""
        guilty = [one for one in self.judged if one.cause is not None]
        first = min(guilty, key=_time, default=None)
        cause = first.cause if first else None
        place = first.place if first else next((one.place for one in self.judged if one.place is not None), None)
        compared = compared_of(self.cases)
        diverges = any(case.first is not None or case.raised is not None for case in self.cases)
        verdict = Verdict.FAIL if first or diverges else self._otherwise(compared)
        findings = _once(finding for one in ([first] if first else []) + list(self.judged) for finding in one.findings)
        if cause is not None and cause.code == "CK609":
            # The run that was saved had left its own course: what the resumed one lacks of it says nothing more.
            findings = tuple(one for one in findings if one.code in ROOTS or _stands_beside_a_save(one))
        if verdict is not Verdict.FAIL and self._noisy:
            told = next((one for one in findings if one.code == "CK611"), None)
            cause, place = Cause("CK611", "certain"), told.where if told else None
        elif verdict is not Verdict.FAIL and self._saw(compared) and self._hidden:
            cause = Cause("CK501", "certain")
        not_judged = self._not_judged(compared)
        missed = demanded(not_judged, self.question.require)
        if missed and verdict in (Verdict.PASS, Verdict.INCONCLUSIVE):
            verdict = Verdict.FAIL
        return Result(
            command="verify",
            verdict=verdict,
            compared=compared,
            first_divergence=place,
            cause=cause,
            findings=findings,
            not_judged=not_judged,
            environment=environment,
            parts={**parts, **({"required": list(dict.fromkeys(one.code for one in missed))} if missed else {})},
        )

    def grounds(self) -> Grounds:
        """Why it fails, and what the verdict is without that."""
        otherwise = self._otherwise(compared_of(self.cases))
        return grounds_of(self.judged, self.question.select, self.question.ignore, otherwise)

    def _otherwise(self, compared: Compared) -> Verdict:
        """The verdict where nothing diverges."""
        passes = self._saw(compared) and not (self._noisy or self._hidden)
        return Verdict.PASS if passes else Verdict.INCONCLUSIVE

    def _saw(self, compared: Compared) -> bool:
        """Whether loads and steps were compared."""
        return bool(compared.steps and compared.parameters) and all(case.load is not None for case in self.cases)

    @property
    def _noisy(self) -> bool:
        return any(self._is_noisy(noise) for noise in self.noises)

    @property
    def _hidden(self) -> bool:
        """Whether all that is trained is NaN or infinite in both runs, so that nothing can be told."""
        return any(case.non_finite is not None and case.non_finite.hides_all for case in self.cases)

    def _is_noisy(self, noise: Noise) -> bool:
        within_floor = self.question.policy.state_exact and noise.only_numeric and not noise.chance
        return noise.first is not None and not within_floor

    def _not_judged(self, compared: Compared) -> tuple[NotJudged, ...]:
        open_codes: dict[str, NotJudged] = {}
        # A rule was judged if any case had what it needs.
        settled = [{one.code for one in judgement.not_judged} for judgement in self.judged]
        for judgement in self.judged:
            for one in judgement.not_judged:
                if all(one.code in codes for codes in settled):
                    open_codes.setdefault(one.code, one)
        notes = [NotJudged(code, why) for code, why in (*self._floor(), *self.reasons)]
        if not compared.parameters:
            notes.append(NotJudged("CK601", "no parameter was compared"))
        if any(case.trajectory is not None and case.trajectory.inputs_unseen for case in self.cases):
            notes.append(NotJudged("CK604", "what entered the model was seen in one run only: compiled code hides it"))
        told = {one.code for one in notes}
        rest = [one for code, one in open_codes.items() if code not in told]
        return tuple(sorted((*dict.fromkeys(notes), *rest), key=lambda one: one.code))

    def _floor(self) -> list[tuple[str, str]]:
        """What equal runs leave open."""
        notes = []
        for noise in self.noises:
            if noise.first is not None:
                notes += self._beyond(noise)
                continue
            noisy = sorted({(item.kind, item.name) for item in noise.floor})
            told = {
                "rng": ("CK603", "nothing seeds this generator"),
                "extra": ("CK601", "it is not a part of the training"),
            }
            notes += [(told[kind][0], f"{name} differs between equal runs: {told[kind][1]}") for kind, name in noisy]
        return notes

    def _beyond(self, noise: Noise) -> list[tuple[str, str]]:
        """What was not judged bitwise, and how great the floor was that it was held against."""
        assert noise.first is not None
        first = noise.open or noise.first
        where = f"step {first.step}, stage {first.stage}"
        if noise.chance:
            return [("CK607", f"{noise.chance}: what follows {where} was not judged")]
        said = f"equal runs differ from {where} on: not judged bitwise"
        if not self.question.policy.state_exact or not noise.only_numeric:
            return [("CK607", said)]
        floors = [case.floor for case in self.cases if case.floor is not None]
        notes = [("CK607", said + self._held(noise, floors))]
        if rounding := sorted({name for floor in floors for name in floor.rounding}):
            notes.append(("CK606", f"the true gradient of {names(rounding)} is zero and what is there is rounding "
                                   "noise: distance there says nothing, and was not judged"))  # fmt: skip
        return notes

    def _held(self, noise: Noise, floors: Sequence[Floor]) -> str:
        """What numbers were held against instead; nothing where a target's resumed runs showed no difference."""
        if not floors and not all(case.commands for case in self.cases):
            return ""
        stages = sorted({item.stage for item in noise.floor if item.stage in NUMERIC}, key=STAGE_ORDER.__getitem__)
        gaps = {key: gap for floor in floors for key, gap in floor.equal.items()
                if gap.rel_l2 and key[1].name not in floor.rounding}  # fmt: skip
        if floors and not gaps:
            return f"; those made once more to measure that did not show it, and {_apart(floors)}"
        said = f"; {', '.join(stages)} within {FLOOR_FACTOR:g} times the floor, the distance that equal runs have"
        if not gaps:
            return said
        if not all(floor.steady_at(min((step for step, _ in floor.equal), default=0)) for floor in floors):
            said += ", which is the widest of a kind where noise comes in some runs only"
        (step, item), gap = max(gaps.items(), key=lambda pair: pair[1].rel_l2)
        name = item.name or item.key or item.kind
        return f"{said}; at most {gap.rel_l2:.3g} relative L2, {gap.max_abs:.3g} absolute, in {name} at step {step}"


def _apart(floors: Sequence[Floor]) -> str:
    """How far the resumed runs that were made once more were from the reference beside them."""
    widest = max((gap.rel_l2 for floor in floors for gap in floor.resumed.values()), default=0.0)
    if not widest:
        return "the resumed run agreed with the reference beside it to the bit"
    return f"the resumed run was at most {widest:.3g} relative L2 from the reference beside it"


def compared_of(cases: Iterable[Case]) -> Compared:
    """How much was compared by several cases."""
    listed = list(cases)
    parts = [case.trajectory.compared for case in listed if case.trajectory is not None]
    parts += [_compared_at_load(case.load) for case in listed if case.load is not None]
    return Compared(
        steps=sum(one.steps for one in parts),
        parameters=max((one.parameters for one in parts), default=0),
        state_tensors=max((one.state_tensors for one in parts), default=0),
        bytes=sum(one.bytes for one in parts),
    )


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


def _stands_beside_a_save(one: Finding) -> bool:
    """Whether a finding is a fault of the load in its own right, where saving has perturbed the run."""
    return one.where.stage == LOAD and one.code not in AFTER_A_SAVE and not one.evidence.get("without_effect")


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings without repeats: several runs may show the same. Of those at one place the weightiest stays."""
    seen: dict[tuple[str, Place], Finding] = {}
    order = [*Severity]
    for one in findings:
        known = seen.setdefault((one.code, one.where), one)
        if order.index(one.severity) < order.index(known.severity):
            seen[one.code, one.where] = one
    return tuple(seen.values())


def _time(one: Judgement) -> tuple[int, int]:
    # The cause stands first. On several ranks the others merely follow what differs earlier within a step.
    return time_of(one.findings[0])

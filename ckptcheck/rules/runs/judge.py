"""All rules over one case: findings, what could not be judged, and the cause."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ckptcheck.finding import Cause, Finding, NotJudged, Place, Severity
from ckptcheck.rules.rule import Rule, chosen
from ckptcheck.rules.runs.beside_load import inputs_differ_too
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.environment import explains, with_rounding, without_numbers
from ckptcheck.rules.runs.legal import differences_without_effect
from ckptcheck.rules.runs.origin import left_alone
from ckptcheck.rules.runs.table import CAUSES, ROOTS, RUN_RULES
from ckptcheck.rules.words import place_of
from ckptcheck.state.stages import LOAD, STAGE_ORDER

WHY_NOT = {
    "load": "there was no load to compare: this needs a run that was saved and one that was resumed",
    "built": "the state before the load was not recorded",
    "trajectory": "no steps were compared",
    "non_finite": "no steps were compared",
    "breaches": "no freeze contract was given",
    "saving": "no run without saving was made to compare with (--quick leaves it out)",
}


COUNTED: Final = frozenset({"CK612", "CK615"})
"""Causes that are told by the number of steps alone."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of a case. `cause` and `place` are None where nothing is wrong."""

    findings: tuple[Finding, ...]
    not_judged: tuple[NotJudged, ...]
    cause: Cause | None
    place: Place | None


def judge(case: Case, select: Iterable[str] = ("CK",), ignore: Iterable[str] = ()) -> Judgement:
    """Run every selected rule. Codes are selected and ignored by prefix; an ignored code is never a cause.

    Where another environment explains what kernels compute, the cause is what differs beside that, if anything does.
    """
    rules = chosen(RUN_RULES, select, ignore)
    if explains(case):
        beside = _judge(without_numbers(case), rules)
        if beside.cause is not None and beside.cause.code not in ("CK614", "CK610"):
            return beside
    return _judge(case, rules)


def _judge(case: Case, rules: list[Rule[Case]]) -> Judgement:
    findings: list[Finding] = []
    not_judged: list[NotJudged] = []
    for one in rules:
        lacking = [need for need in one.needs if getattr(case, need) is None]
        if lacking:
            not_judged.append(NotJudged(one.code, WHY_NOT[lacking[0]]))
        elif not (case.goes_on_exactly and "load" in one.needs):
            findings += one.findings(case)
    if case.goes_on_exactly:
        allowed = {one.code for one in rules}
        findings += [one for one in differences_without_effect(case) if one.code in allowed]
    # A code may be asked of two sides of a case; what was found on one has been judged.
    found = {one.code for one in findings}
    not_judged = [one for one in not_judged if one.code not in found]
    cause = _cause(case, findings)
    if cause is not None and cause.code != "CK610":
        findings = [one for one in findings if one.code != "CK610"]
    if cause is not None and cause.where.stage == LOAD:
        findings = [one for one in findings if _stands_beside_a_load(one)]
        if inputs_differ_too.code in {one.code for one in rules} - {one.code for one in findings}:
            findings += inputs_differ_too.findings(case)
    findings.sort(key=lambda one: (one is not cause, _rank(one)))
    findings = [with_rounding(case, one) for one in findings]
    named = Cause(cause.code, _confidence(case, cause)) if cause is not None else None
    return Judgement(tuple(findings), tuple(not_judged), named, cause.where if cause else _first_place(case))


def _cause(case: Case, findings: list[Finding]) -> Finding | None:
    """The first in time; at the same time the most specific; what needs no resume before what does."""
    candidates = [one for one in findings if one.code in CAUSES and not one.evidence.get("without_effect")]
    if not explains(case):
        candidates = [one for one in candidates if one.code != "CK614"]
    seen = case.trajectory is not None or case.raised is not None or case.lost_steps
    if case.goes_on_exactly or not seen:
        candidates = [one for one in candidates if one.code in ROOTS]
    if {one.code for one in candidates} & {"CK401", "CK402"} or case.first is None:
        candidates = [one for one in candidates if one.code != "CK403" or one.severity == Severity.ERROR]
    return min(candidates, key=_precedence, default=None)


def _precedence(one: Finding) -> tuple[int, int, int]:
    return (*time_of(one), CAUSES.index(one.code))


def time_of(one: Finding) -> tuple[int, int]:
    """When it happened: the step, and the place within it.

    What a step breaks by itself comes before the save after it, the save before the load of what it saved, and that
    before the stages of a step.
    """
    step = one.where.step if one.where.step is not None else 0
    if one.code == "CK609":
        saved_after = one.evidence.get("saved_after_step")
        return saved_after if isinstance(saved_after, int) else step, 1
    if one.code in ROOTS:
        return step, 0
    return step, 2 if one.where.stage == LOAD else 3 + STAGE_ORDER[one.where.stage or LOAD]


def _rank(one: Finding) -> tuple[int, int]:
    weight = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}[one.severity]
    return weight, CAUSES.index(one.code) if one.code in CAUSES else len(CAUSES)


def _stands_beside_a_load(one: Finding) -> bool:
    """Whether it does not merely follow from what a load broke."""
    counted = one.code in COUNTED and one.where.stage is None
    return counted or one.where.stage == LOAD or one.code in ROOTS or one.code not in CAUSES


def _confidence(case: Case, cause: Finding) -> str:
    if cause.code == "CK610":
        return "unknown"
    if cause.code == "CK614":
        return "likely"
    if cause.code == "CK603" and case.commands and not left_alone(case):
        return "likely"  # it may have been restored, and drawn from before the first step
    counted = cause.code in COUNTED and cause.where.stage is None
    return "certain" if counted or cause.where.stage == LOAD or cause.code in ROOTS else "likely"


def _first_place(case: Case) -> Place | None:
    return place_of(case.first) if case.first is not None else None

"""What several ranks say, told once: the rank stands in the place, and what only follows elsewhere is left out."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ckptcheck.finding import Cause, Finding, Place, Severity
from ckptcheck.rules.runs.judge import Judgement
from ckptcheck.rules.runs.table import CAUSES, ROOTS
from ckptcheck.state.stages import STAGE_ORDER


def of_rank(judged: Judgement, rank: int) -> Judgement:
    """A judgement with the rank in every place."""
    return replace(
        judged,
        findings=tuple(replace(one, where=replace(one.where, rank=rank)) for one in judged.findings),
        place=replace(judged.place, rank=rank) if judged.place is not None else None,
    )


def joined(judged: Sequence[Judgement]) -> list[Judgement]:
    """The judgements of all ranks: of what is the same on several, the first rank tells, with all ranks as evidence.

    What differs on one rank later than the cause on another follows from it, as gradients are shared.
    """
    ranks: dict[tuple[str, Place], list[int]] = {}
    for one in (finding for judgement in judged for finding in judgement.findings):
        ranks.setdefault(_what(one), []).append(one.where.rank or 0)
    first = min((_when(one.place) for one in judged if one.cause is not None and one.place is not None), default=None)
    told: set[tuple[str, Place]] = set()
    kept = []
    for judgement in judged:
        findings = []
        for one in judgement.findings:
            key = _what(one)
            if key not in told and not (first is not None and _follows(one, first)):
                told.add(key)
                shared = ranks[key]
                findings.append(replace(one, evidence={**one.evidence, "ranks": list(shared)}) if shared[1:] else one)
        # The finding of a cause stands first; where it is told of another rank, so is the cause.
        is_told = bool(judgement.findings[:1]) and _what(judgement.findings[0]) in map(_what, findings[:1])
        cause = judgement.cause if is_told else None
        kept.append(replace(judgement, findings=tuple(findings), cause=cause))
    return kept


def _what(one: Finding) -> tuple[str, Place]:
    return one.code, replace(one.where, rank=None)


def _when(place: Place | None) -> tuple[int, int]:
    if place is None:
        return 0, 0
    return place.step or 0, STAGE_ORDER[place.stage] if place.stage is not None else 0


def _follows(one: Finding, first: tuple[int, int]) -> bool:
    return one.code in CAUSES and one.code not in ROOTS and _when(one.where) > first


def with_loads(judged: Judgement, seen: Iterable[Finding], goes_on: bool) -> Judgement:
    """A judgement with what was seen of `load_state_dict` as it happened, each fault told once.

    Where the run goes on exactly, whatever was loaded oddly had no effect on the steps that follow: it is a warning.
    """
    known = {(one.code, one.where.parameter) for one in judged.findings}
    fresh = []
    for one in seen:
        if (one.code, one.where.parameter) not in known:
            known.add((one.code, one.where.parameter))
            fresh.append(_mild(one) if goes_on else one)
    return replace(judged, findings=(*judged.findings, *fresh))


def with_cause_of_raise(judged: Judgement, raised: str | None) -> Judgement:
    """A judgement of a run that raised for no reason that is known, with what was seen of its load as the cause."""
    if raised is None or judged.cause is None or judged.cause.code != "CK610":
        return judged
    explaining = {*CAUSES} - {"CK610", "CK614"}  # another environment moves the last digits, and raises nothing
    faults = [one for one in judged.findings if one.severity is Severity.ERROR and one.code in explaining]
    if not faults:
        return judged
    worst = min(faults, key=lambda one: CAUSES.index(one.code))
    told = replace(worst, evidence={**worst.evidence, "raised": raised})
    rest = [one for one in judged.findings if one is not worst and one.code != "CK610"]
    return replace(judged, findings=(told, *rest), cause=Cause(told.code, "certain"), place=told.where)


def _mild(one: Finding) -> Finding:
    if one.severity is not Severity.ERROR:
        return one
    return replace(
        one,
        severity=Severity.WARNING,
        message=f"{one.message}; without effect on the steps that follow",
        evidence={**one.evidence, "without_effect": True},
    )

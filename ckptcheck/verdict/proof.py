"""What a bisection says about the inferred cause: they agree, or both are told."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.experiment.sections import Section
from ckptcheck.finding import Cause, Finding, Result

CODES: Final[Mapping[str, tuple[str, ...]]] = {
    "ties": ("CK311",),
    "parameters": ("CK309", "CK601", "CK504", "CK612", "CK310"),
    "buffers": ("CK605", "CK601", "CK612", "CK309"),
    "module_state": ("CK601",),
    "requires_grad": ("CK405", "CK302"),
    "groups": ("CK301", "CK302", "CK303", "CK305", "CK307", "CK405"),
    "rest": ("CK601",),
    "hyperparameters": ("CK306", "CK602", "CK201", "CK301"),
    "state": ("CK601", "CK201", "CK202", "CK203", "CK301", "CK302", "CK304", "CK307", "CK405", "CK406", "CK504",
              "CK505", "CK612"),
    "schedule": ("CK602", "CK306"),
    "scaler": ("CK608",),
    "ema": ("CK208", "CK601"),
    "data": ("CK604", "CK612"),
    "extra": ("CK601", "CK612"),
    "gradients": ("CK613",),
    "modes": ("CK601", "CK606", "CK614"),
    "flags": ("CK614",),
    "generator": ("CK603",),
}  # fmt: skip
"""Kind of section to the codes that say it is what a load broke; the first is what the section alone stands for."""

UNDECLARED: Final = ("CK604", "CK606", "CK607", "CK610", "CK612", "CK615")
"""Codes that agree with a run which no recorded state heals: the fault is in code, or in state that nobody declared."""


def with_proof(result: Result, sections: Sequence[Section], said: str) -> tuple[Result, str]:
    """The result whose cause is proved by the sections that heal, and what is to be said where they disagree.

    The proof takes the inferred cause's place only where all its sections stand for one code and the rules found
    that code too; otherwise the inferred cause stays, as unsure as it was, and both are told.
    """
    if result.cause is None:
        return result, ""
    codes = {code for one in sections for code in CODES[one.kind]}
    if result.cause.code in codes:
        cause = Cause(result.cause.code, "certain")
        return replace(result, cause=cause, findings=_marked(result, cause.code, "proved_by", said)), ""
    own = {CODES[one.kind][0] for one in sections}
    found = [one for one in result.findings if one.code in own and not one.evidence.get("without_effect")]
    inferred = f"the rules had inferred {result.cause.code}"
    if len(own) > 1 or not found:
        return result, f"{inferred}, which is not what these sections stand for: both are told"
    cause, first = Cause(found[0].code, "certain"), found[0]
    findings = (first, *(one for one in result.findings if one is not first))
    moved = replace(result, cause=cause, findings=findings, first_divergence=first.where)
    return replace(moved, findings=_marked(moved, cause.code, "proved_by", said)), inferred


def in_part(result: Result, sections: Sequence[Section], said: str) -> tuple[Result, str]:
    """The result where sections heal a part of what diverges, and in brackets whether they bear the cause out."""
    codes = {code for one in sections for code in CODES[one.kind]}
    if result.cause is None:
        return result, ""
    code = result.cause.code
    if code not in codes:
        return result, f" (the rules had inferred {code}, which is not what these sections stand for)"
    return replace(result, findings=_marked(result, code, "borne_out_by", said)), f" ({code} is borne out)"


def without_state(result: Result, said: str) -> tuple[Result, str]:
    """The result where no recorded state heals, and what is to be said where the inferred cause is of another kind."""
    if result.cause is None:
        return result, ""
    if result.cause.code in UNDECLARED:
        return replace(result, findings=_marked(result, result.cause.code, "confirmed_by", said)), ""
    return result, f"the rules had inferred {result.cause.code}, which such a run does not bear out: both are told"


def _marked(result: Result, code: str, key: str, said: str) -> tuple[Finding, ...]:
    """The findings, the cause's with one more piece of evidence."""
    at = next((place for place, one in enumerate(result.findings) if one.code == code), None)
    return tuple(
        replace(one, evidence={**one.evidence, key: said}) if place == at else one
        for place, one in enumerate(result.findings)
    )

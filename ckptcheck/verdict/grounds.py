"""Why an experiment fails, and what its verdict is where the project accepts that."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ckptcheck.finding import Finding, Place, Result, Verdict, gates
from ckptcheck.rules.runs.judge import Judgement
from ckptcheck.rules.runs.table import CAUSES
from ckptcheck.verdict.accepting import asked_and_judged, settle
from ckptcheck.verdict.decisions import Decisions


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why an experiment fails, beside the severity of its findings.

    `causes` are (code, place) of each finding that fails it whatever it weighs; `others` says whether something may
    fail it that no finding stands for. `otherwise` is the verdict with nothing of that.
    """

    causes: Collection[tuple[str, Place]] = ()
    others: bool = False
    otherwise: Verdict = Verdict.PASS


def grounds_of(
    judged: Iterable[Judgement], select: Sequence[str], ignore: Sequence[str], otherwise: Verdict
) -> Grounds:
    """The grounds of judgements by such rules: a cause of which the rule was left out is no finding."""
    listed = list(judged)
    asked = asked_and_judged(select, ignore, ())
    causes = [(one.findings[0].code, one.findings[0].where) for one in listed if one.cause is not None]
    hidden = not all(map(asked, CAUSES)) and any(one.cause is None and one.place is not None for one in listed)
    return Grounds(causes, hidden, otherwise)


def settled(
    result: Result,
    decided: Decisions,
    grounds: Grounds,
    select: Sequence[str] = ("CK",),
    ignore: Sequence[str] = (),
) -> Result:
    """The result of an experiment, in which a divergence fails whatever it weighs, as the project has decided.

    Where each cause is accepted and nothing else fails it, it is what it is without them; no inconclusive one passes.
    """
    said = settle(
        result.findings,
        decided,
        result.command,
        judged=asked_and_judged(select, ignore, result.not_judged),
        conclusive=result.verdict in (Verdict.PASS, Verdict.FAIL),
    )
    verdict = result.verdict
    if verdict is Verdict.FAIL and _all_accepted(said.findings, result, grounds):
        verdict = grounds.otherwise
    if verdict is Verdict.PASS and any(gates(one, decided.fail_on) for one in said.findings):
        verdict = Verdict.FAIL
    return replace(result, verdict=verdict, findings=said.findings, parts={**result.parts, **said.parts})


def _all_accepted(findings: Sequence[Finding], result: Result, grounds: Grounds) -> bool:
    """Whether all that fails an experiment is accepted."""
    if grounds.others or result.parts.get("required") or any(gates(one, "error") for one in findings):
        return False
    if result.cause is None or result.first_divergence is None:
        return False
    cause = result.cause.code, result.first_divergence
    # Where saving perturbs the run, findings that merely follow from that are not told: they fail nothing either.
    standing = [one for one in findings if (one.code, one.where) in (cause, *grounds.causes)]
    told = any((one.code, one.where) == cause for one in standing)
    return told and all(one.accepted is not None for one in standing)

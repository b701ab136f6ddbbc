"""Findings as a project weighs and accepts them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from ckptcheck.config import Acceptance
from ckptcheck.errors import OutputError
from ckptcheck.finding import Accepted, Finding, Json, NotJudged, Severity
from ckptcheck.verdict.baseline import Baseline, Fingerprint, fingerprint, write_baseline
from ckptcheck.verdict.decisions import Decisions
from ckptcheck.verdict.named import parameters_of

KNOWN: Final = "it was there when the baseline was written"
"""The reason of what a baseline accepts."""
_WEIGHT: Final = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Settled:
    """Findings as weighed and accepted, and what a result tells of that: nothing where nothing was decided."""

    findings: tuple[Finding, ...]
    parts: dict[str, Json]


def settle(
    findings: Iterable[Finding],
    decided: Decisions,
    command: str,
    *,
    judged: Callable[[str], bool],
    conclusive: bool = True,
) -> Settled:
    """Weigh findings, and accept those that the project lives with.

    `judged` tells the codes that the command has asked and could judge: what a baseline has of others may still be
    there. A baseline is written unless the run is not `conclusive`; where it cannot be, nothing is accepted by it.
    """
    weighed = [_weighed(one, decided.severity) for one in findings]
    if not (decided.accept or decided.baseline or decided.keep):
        return Settled(tuple(weighed), {})
    met: Counter[Acceptance] = Counter()
    told = [_accepted(one, decided, met) for one in weighed]
    part: dict[str, Json] = {
        "unused": [
            {**_row(one), "why": _why_unused(one, weighed)}
            for one in decided.accept if decided.is_in_force(one) and not met[one]
        ],
        "expired": [{**_row(one), "findings": met[one]} for one in decided.accept if not decided.is_in_force(one)],
    }  # fmt: skip
    fresh = [one for one in told if one.accepted is None]
    if decided.baseline is not None:
        told, left = _known(told, decided.baseline)
        grown = {(one.code, one.where.parameter) for one in told if one.accepted is None}
        left = Counter({one: count for one, count in left.items() if (one.code, one.parameter) not in grown})
        part["baseline"] = _of_baseline(decided.baseline, left, judged)
    if decided.keep is not None:
        part["written"], told = _kept(decided.keep, command, fresh, told, conclusive=conclusive)
    return Settled(tuple(told), {"acceptances": part})


def _weighed(finding: Finding, severity: Mapping[str, Severity]) -> Finding:
    """The finding with the severity that was chosen for it; what has no effect never weighs more than it did."""
    chosen = max((one for one in severity if finding.code.startswith(one)), key=len, default=None)
    if chosen is None:
        return finding
    weight = severity[chosen]
    if finding.evidence.get("without_effect") and _WEIGHT[weight] < _WEIGHT[finding.severity]:
        return finding
    return replace(finding, severity=weight)


def _accepted(finding: Finding, decided: Decisions, met: Counter[Acceptance]) -> Finding:
    """The finding as accepted by the first acceptance in force that it meets; all that it meets are counted."""
    meets = [one for one in decided.accept if _meets(finding, one)]
    met.update(meets)
    first = next(filter(decided.is_in_force, meets), None)
    if first is None:
        return finding
    until = first.until.isoformat() if first.until is not None else None
    return replace(finding, accepted=Accepted(first.reason, until, first.source))


def _meets(finding: Finding, one: Acceptance) -> bool:
    """Whether an acceptance covers a finding: all parameters that this names, where the acceptance is for some."""
    return finding.code == one.code and (one.parameter is None or _beyond(finding, one.parameter) == "")


def _beyond(finding: Finding, glob: str) -> str | None:
    """What a finding names beside what a glob covers, "" for nothing; None where it does not cover the place itself."""
    from ckptcheck.rules.words import KEPT

    place = finding.where.parameter
    if place is None or not fnmatchcase(place, glob):
        return None
    named = parameters_of(finding)
    uncovered = next((one for one in named if not fnmatchcase(one, glob)), "")
    return uncovered or ("more than it lists" if len(named) >= KEPT - 1 else "")


def _why_unused(one: Acceptance, findings: Iterable[Finding]) -> str | None:
    """Why an acceptance met nothing, where there is a finding that it covers a part of."""
    for finding in findings if one.parameter is not None else ():
        if finding.code == one.code and (name := _beyond(finding, one.parameter or "")):
            return f"the finding is about {name} too"
    return None


def _row(one: Acceptance) -> dict[str, Json]:
    return {
        "code": one.code,
        "parameter": one.parameter,
        "reason": one.reason,
        "until": one.until.isoformat() if one.until is not None else None,
        "source": one.source,
    }


def _known(findings: Sequence[Finding], baseline: Baseline) -> tuple[list[Finding], Counter[Fingerprint]]:
    """Findings with those accepted that the baseline has, as often in one step as it has them, and what it has left."""
    seen: Counter[tuple[Fingerprint, int | None]] = Counter()
    told = []
    for one in findings:
        step, now = one.where.step, fingerprint(one)
        known = (entry for entry in baseline.like(now) if seen[entry, step] < baseline.found[entry])
        entry = next(known, None) if one.accepted is None else None
        if entry is not None:
            seen[entry, step] += 1
        told.append(one if entry is None else _by(baseline.path, one))
    most: Counter[Fingerprint] = Counter()
    for (entry, _), count in seen.items():
        most[entry] = max(most[entry], count)
    return told, baseline.found - most


def _by(path: Path, finding: Finding) -> Finding:
    return replace(finding, accepted=Accepted(KNOWN, None, f"baseline {path}"))


def _of_baseline(baseline: Baseline, left: Counter[Fingerprint], judged: Callable[[str], bool]) -> dict[str, Json]:
    """What became of a baseline: how many findings it has, which are gone, how many could not be looked for."""
    gone: list[Json] = [{**one.row, "count": count} for one, count in sorted(left.items(), key=str) if judged(one.code)]
    return {
        "path": str(baseline.path),
        "findings": baseline.found.total(),
        "gone": gone,
        "not_judged": sum(count for one, count in left.items() if not judged(one.code)),
    }


def _kept(
    path: Path, command: str, fresh: Sequence[Finding], told: list[Finding], *, conclusive: bool
) -> tuple[dict[str, Json], list[Finding]]:
    """Write what the project has not accepted itself as a baseline; what is told of that, and the findings after it."""
    part: dict[str, Json] = {"path": str(path), "findings": None, "error": None}
    if not conclusive:
        return part | {"error": "nothing was written: the run is inconclusive"}, told
    try:
        written = write_baseline(path, command, fresh)
    except OutputError as error:  # what was found out shall be shown first
        return part | {"error": str(error)}, told
    return part | {"findings": written}, [_by(path, one) if one.accepted is None else one for one in told]


def asked_and_judged(
    select: Sequence[str], ignore: Sequence[str], not_judged: Iterable[NotJudged]
) -> Callable[[str], bool]:
    """Tell whether a rule was asked and could judge all."""
    lacking = {one.code for one in not_judged}
    return lambda code: (
        code.startswith(tuple(select)) and not (ignore and code.startswith(tuple(ignore))) and code not in lacking
    )

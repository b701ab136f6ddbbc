"""What the formats of pipelines agree on: which findings made a verdict, what it is about, and what a finding is."""

from typing import Final

from ckptcheck.finding import Finding, Json, Place, Result, Severity, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.page import escaped

_NAME: Final = 240
"""Characters of a name or path that a title shows."""
_SEVERITIES: Final = (*Severity,)
_SUBJECTS: Final = ("path", "target", "run", "subject")
"""Parts that say what a result is about, where they are texts."""


def gating(result: Result) -> tuple[bool, ...]:
    """Tell of each finding whether the verdict fails by it; an accepted one never does.

    A result does not say by which severity it was told to fail. Where nothing else explains the fail, it is warnings.
    """
    cause = words.cause_finding(result)
    can = [one.accepted is None and not words.is_without_effect(one) for one in result.findings]
    if result.verdict is not Verdict.FAIL:
        return (False,) * len(can)
    pairs = [*zip(result.findings, can, strict=True)]
    failing = tuple(good and (one is cause or one.severity is Severity.ERROR) for one, good in pairs)
    if any(failing) or cause is not None or result.parts.get("required"):
        return failing
    return tuple(good and one.severity is Severity.WARNING for one, good in pairs)


def weightiest_first(result: Result) -> list[tuple[Finding, bool]]:
    """Return the findings with whether they gate: those that do first, then by severity; accepted ones come last."""
    pairs = [*zip(result.findings, gating(result), strict=True)]
    cause = words.cause_finding(result)
    return sorted(
        pairs,
        key=lambda pair: (
            pair[0] is not cause,
            not pair[1],
            pair[0].accepted is not None,
            _SEVERITIES.index(pair[0].severity),
        ),
    )


def subject(result: Result) -> str:
    """Return what a result is about: a target, a command, a checkpoint, two sides; "" where it does not say."""
    parts = result.parts
    recorded = parts.get("recorded")
    trace = recorded.get("trace") if isinstance(recorded, dict) else None
    told = (_path(value) for value in (*(parts.get(key) for key in _SUBJECTS), trace))
    sides = " ".join(filter(None, (_path(parts.get(side)) for side in ("left", "right"))))
    return shortened(escaped(next(filter(None, told), sides)))


def path_of(result: Result, finding: Finding | None = None) -> str:
    """Return the file that a finding is about, else the one that the result is about; "" where neither is known.

    A result is about a checkpoint, of two sides the right one, or about the code that trains.
    """
    if finding is not None and finding.where.path:
        return finding.where.path
    parts, target = result.parts, _path(result.parts.get("target"))
    code = target if target.endswith(".py") else target[: target.find(".py:") + 3] if ".py:" in target else ""
    script = next((word for word in _path(parts.get("run")).split() if word.endswith(".py")), "")
    return _path(parts.get("path")) or _path(parts.get("right")) or code or script


def spot(where: Place) -> str:
    """Return which tensor, value, optimizer or file a place is about, without when; it names a case for good."""
    parts = [words.thing(where.parameter, where.key), words.binding(where), where.path or ""]
    return shortened(escaped(", ".join(part for part in parts if part)))


def shortened(text: str, most: int = _NAME) -> str:
    """Return `text`, or its beginning and its end where it has more than `most` characters, and how many are gone."""
    if len(text) <= most:
        return text
    half = (most - 40) // 2
    return f"{text[:half]}[... {len(text) - 2 * half} more characters ...]{text[-half:]}"


def _path(value: Json) -> str:
    if isinstance(value, dict):
        value = value.get("path")
    return value if isinstance(value, str) else ""

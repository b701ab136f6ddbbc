"""The rows of findings: code, severity, message, and what to do."""

from itertools import zip_longest
from typing import Final

from ckptcheck.finding import Finding, Result, Severity
from ckptcheck.reports import words
from ckptcheck.reports.sheet import Sheet

_SEVERITY_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}

_ORDER: Final = (*Severity,)
"""The weightiest first."""
FEW: Final = 3
"""How many findings of one code a checkpoint's text shows."""


def other_findings(sheet: Sheet, result: Result, full: bool, most: int = 1) -> None:
    """Say every finding but the cause, or of each code and severity the first `most` unless all are wanted.

    Of what is for information only one is enough. What is to be done is said once where it is the same.
    """
    told = words.cause_finding(result)
    others = [finding for finding in result.findings if finding is not told and not words.is_without_effect(finding)]
    others.sort(key=lambda finding: (finding.accepted is not None, _ORDER.index(finding.severity)))
    label = "Also found" if told else "Found"
    alike: dict[tuple[str, Severity, str], list[Finding]] = {}
    for finding in others:
        alike.setdefault((finding.code, finding.severity, words.accepted(finding)), []).append(finding)
    for (_, severity, accepted), group in alike.items():
        shown = group if full else group[: 1 if severity is Severity.INFO else most]
        with_fix = told is None and not full and severity is not Severity.INFO
        for finding, after in zip_longest(shown, shown[1:]):
            last = after is None
            hidden = len(group) - len(shown)
            more = f" (and {hidden} more like {'it' if len(shown) == 1 else 'these'}; -v shows all)"
            said = _message(finding, result) + (more if last and hidden else "")
            lead = f"{finding.code} {severity.value}{', accepted' if accepted else ''}: "
            sheet.row(label, said, lead=lead, lead_style="dim" if accepted else _SEVERITY_STYLES[severity])
            if accepted and last and (full or severity is not Severity.INFO):
                sheet.row("", accepted)
            if with_fix and not accepted and finding.fix and (last or after.fix != finding.fix):
                sheet.row("", f"to do: {finding.fix}")
            _details(sheet, finding, full)
            label = ""


def _message(finding: Finding, result: Result) -> str:
    """The message without the checkpoint's own path in front, which stands below."""
    return finding.message.removeprefix(f"{words.scalar(result.parts.get('path'))}: ")


def without_effect(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what differs without consequence; what several runs show alike once, with their names."""
    label = "No effect"
    alike: dict[tuple[str, str, int], list[Finding]] = {}
    for place, finding in enumerate(filter(words.is_without_effect, result.findings)):
        alike.setdefault((finding.code, finding.message, place if full else 0), []).append(finding)
    points = result.parts.get("resume_at")
    several = isinstance(points, list) and len(points) > 1 and not full
    for (code, message, _), group in alike.items():
        runs = ", ".join(dict.fromkeys(words.scalar(one.evidence["run"]) for one in group if "run" in one.evidence))
        said = f"{message} ({runs})" if several and runs else message
        sheet.row(label, said, style="dim", lead=f"{code} ", lead_style="dim")
        _details(sheet, group[0], full)
        label = ""


def _details(sheet: Sheet, finding: Finding, full: bool) -> None:
    if not full:
        return
    for lead, said in (
        ("where: ", words.place(finding.where)),
        ("evidence: ", words.evidence(finding)),
        ("to do: ", finding.fix),
    ):
        if said:
            sheet.row("", said, lead=lead, style="dim", lead_style="dim", deeper=True)

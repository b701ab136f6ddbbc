"""The rows of findings: code, severity, message, and what to do."""

from typing import Final

from ckptcheck.finding import Finding, Result, Severity
from ckptcheck.reports import words
from ckptcheck.reports.sheet import Sheet

_SEVERITY_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def other_findings(sheet: Sheet, result: Result, full: bool) -> None:
    """Say every finding but the cause, or one of each code unless all are wanted."""
    told = words.cause_finding(result)
    others = [finding for finding in result.findings if finding is not told and not words.is_without_effect(finding)]
    label = "Also found" if told else "Found"
    first: dict[str, Finding] = {}
    for finding in others:
        first.setdefault(finding.code, finding)
    shown = others if full else [*first.values()]
    for finding in shown:
        like = sum(other.code == finding.code for other in others) - 1
        lead = f"{finding.code} {finding.severity.value}: "
        more = f" (and {like} more like it; -v shows all)" if like and not full else ""
        sheet.row(label, finding.message + more, lead=lead, lead_style=_SEVERITY_STYLES[finding.severity])
        if told is None and not full and finding.fix and finding.severity is not Severity.INFO:
            sheet.row("", f"to do: {finding.fix}")
        _details(sheet, finding, full)
        label = ""


def without_effect(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what differs without consequence."""
    label = "No effect"
    for finding in filter(words.is_without_effect, result.findings):
        sheet.row(label, finding.message, style="dim", lead=f"{finding.code} ", lead_style="dim")
        _details(sheet, finding, full)
        label = ""


def _details(sheet: Sheet, finding: Finding, full: bool) -> None:
    if not full:
        return
    for lead, said in (
        ("at ", words.place(finding.where)),
        ("evidence: ", words.evidence(finding)),
        ("to do: ", finding.fix),
    ):
        if said:
            sheet.row("", said, lead=lead, style="dim", lead_style="dim", deeper=True)

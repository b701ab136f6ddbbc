"""The result as a person reads it: the verdict, then where, why and what to do, then in short what stays open."""

from typing import Final

from ckptcheck.finding import Finding, Result, Severity, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.distances import differences, distance, drift, numbers_at, spoken
from ckptcheck.reports.margin import compared, crossed, environment, not_judged, runs, settings
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_VERDICT_STYLES: Final = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.ERROR: "bold red",
}
_SEVERITY_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def render(result: Result, page: Page) -> str:
    """Return the whole report, or only its first line where the page wants no more than the verdict."""
    sheet = Sheet(page)
    verdict = f"{result.verdict.value.upper()}  "
    sheet.say(words.headline(result), style="bold", lead=verdict, lead_style=_VERDICT_STYLES[result.verdict])
    if page.detail is Detail.VERDICT or result.verdict is Verdict.ERROR:
        return sheet.text
    full = page.detail is Detail.ALL
    sheet.gap()
    _first_divergence(sheet, result, full)
    _cause(sheet, result, full)
    if result.first_divergence is not None:
        sheet.gap()
    differences(sheet, result, full)
    drift(sheet, result, full)
    _other_findings(sheet, result, full)
    if result.first_divergence is not None:
        sheet.gap()
    compared(sheet, result)
    runs(sheet, result, full)
    crossed(sheet, result)
    _without_effect(sheet, result, full)
    not_judged(sheet, result, full)
    settings(sheet, result, full)
    environment(sheet, result, full)
    return sheet.text


def _first_divergence(sheet: Sheet, result: Result, full: bool) -> None:
    first = result.first_divergence
    if first is None:
        return
    numbers = numbers_at(result, first)
    what, when = spoken(first, numbers), words.moment(first.step, first.stage)
    sheet.row("First at", f"{when}: {what}" if what else when)
    if said := words.magnitude(numbers, full=True) if full else distance(numbers):
        sheet.row("", said)
    elif words.is_missing(result):
        sheet.row("", "missing after the load")
    elif (full or result.command == "compare") and (reason := numbers.get("reason")):
        sheet.row("", f"no magnitudes: {words.scalar(reason)}", style="dim")


def _cause(sheet: Sheet, result: Result, full: bool) -> None:
    if result.cause is None:
        return
    finding = words.cause_finding(result)
    name = f" {finding.name}" if finding else ""
    sheet.row("Cause", f"{result.cause.code}{name} ({result.cause.confidence})", style="bold")
    if finding is None:
        return
    sheet.row("", finding.message)
    if raised := finding.evidence.get("raised"):
        sheet.row("", f"the resumed run then raised {words.scalar(raised)}")
    if full and (said := words.evidence(finding)):
        sheet.row("", f"evidence: {said}", style="dim")
    if finding.fix:
        sheet.row("To do", finding.fix)


def _other_findings(sheet: Sheet, result: Result, full: bool) -> None:
    told = words.cause_finding(result)
    others = [finding for finding in result.findings if finding is not told and not words.is_without_effect(finding)]
    label = "Also found" if told else "Found"
    shown = others if full else list({finding.code: finding for finding in reversed(others)}.values())[::-1]
    for finding in shown:
        like = sum(other.code == finding.code for other in others) - 1
        lead = f"{finding.code} {finding.severity.value}: "
        more = f" (and {like} more like it; -v shows all)" if like and not full else ""
        sheet.row(label, finding.message + more, lead=lead, lead_style=_SEVERITY_STYLES[finding.severity])
        if told is None and not full and finding.fix:
            sheet.row("", f"to do: {finding.fix}")
        _details(sheet, finding, full)
        label = ""


def _without_effect(sheet: Sheet, result: Result, full: bool) -> None:
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

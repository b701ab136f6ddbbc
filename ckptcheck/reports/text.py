"""The result as a person reads it: the verdict, then where, why and what to do, then in short what stays open."""

from collections.abc import Callable, Mapping
from typing import Final

from ckptcheck.finding import Result, Verdict
from ckptcheck.reports import (
    cards,
    checked,
    configured,
    contents,
    curves,
    differences,
    distances,
    probed,
    recorded,
    words,
)
from ckptcheck.reports.accepted import acceptances
from ckptcheck.reports.bisected import bisected
from ckptcheck.reports.commands import commands, not_seen, saved_later
from ckptcheck.reports.findings import other_findings, without_effect
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.margin import compared, crossed, environment, not_judged, points, runs, settings
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.presence import gradients
from ckptcheck.reports.sheet import Sheet

_VERDICT_STYLES: Final = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.ERROR: "bold red",
}
_BODIES: Final[Mapping[str, Callable[[Sheet, Result, Page], None]]] = {
    "inspect": contents.body,
    "diff": differences.body,
    "check": checked.body,
    "record": recorded.body,
    "probe": probed.body,
    "explain": cards.body,
    "config": configured.body,
}
"""Command to what it says below the headline; the others tell of a trajectory."""
_WITHOUT_VERDICT: Final = frozenset({"inspect", "record", "explain", "config"})


def render(result: Result, page: Page) -> str:
    """Return the whole report, or only its first line where the page wants no more than the verdict."""
    sheet = Sheet(page)
    has_verdict = result.command not in _WITHOUT_VERDICT or result.verdict is Verdict.ERROR
    verdict = f"{result.verdict.value.upper()}  " if has_verdict else ""
    sheet.say(headline(result), style="bold", lead=verdict, lead_style=_VERDICT_STYLES[result.verdict])
    if page.detail is Detail.VERDICT or result.verdict is Verdict.ERROR:
        return sheet.text
    sheet.gap()
    _BODIES.get(result.command, _trajectory)(sheet, result, page)
    return sheet.text.rstrip("\n") + "\n"


def _trajectory(sheet: Sheet, result: Result, page: Page) -> None:
    full = page.detail is Detail.ALL
    _first_divergence(sheet, result, full)
    _cause(sheet, result, full)
    bisected(sheet, result, full)
    if result.first_divergence is not None:
        sheet.gap()
    distances.differences(sheet, result, full)
    if not curves.drift(sheet, result, page):
        distances.drift(sheet, result, full)
    gradients(sheet, result, full)
    other_findings(sheet, result, full)
    checked.demanded(sheet, result)
    acceptances(sheet, result, full)
    if result.first_divergence is not None:
        sheet.gap()
    commands(sheet, result, full)
    compared(sheet, result)
    saved_later(sheet, result, full)
    runs(sheet, result, full)
    points(sheet, result)
    crossed(sheet, result)
    not_seen(sheet, result, full)
    without_effect(sheet, result, full)
    not_judged(sheet, result, full)
    settings(sheet, result, full)
    environment(sheet, result, full)


def _first_divergence(sheet: Sheet, result: Result, full: bool) -> None:
    first = result.first_divergence
    if first is None:
        return
    numbers = distances.numbers_at(result, first)
    what, when = distances.spoken(first, numbers), words.when(first)
    sheet.row("First at", f"{when}: {what}" if what else when)
    if said := (words.magnitude(numbers, full=True) if full else "") or distances.distance(numbers):
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
    if (raised := finding.evidence.get("raised")) and words.scalar(raised) not in finding.message:
        did = "failed:" if "run" in result.parts else "raised"
        sheet.row("", f"the resumed run then {did} {words.scalar(raised)}")
    last = finding.evidence.get("last_lines")
    for place, line in enumerate(last if isinstance(last, list) else ()):
        sheet.row("", words.scalar(line), lead="" if place else "its last lines: ", style="dim", deeper=place > 0)
    if full and (said := words.evidence(finding)):
        sheet.row("", f"evidence: {said}", style="dim")
    if finding.fix:
        sheet.row("To do", finding.fix)
    if said := words.accepted(finding):
        sheet.row("Accepted", said.removeprefix("accepted").removeprefix(": ").strip())

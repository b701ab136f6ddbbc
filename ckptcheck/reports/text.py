"""The result as a person reads it: the verdict first, then where, why, what to do, and what stays open."""

import json
from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Finding, Json, Place, Result, Severity, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_VERDICT_STYLES: Final = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.ERROR: "bold red",
}
_SEVERITY_STYLES: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_TOLD_ELSEWHERE: Final = frozenset({"trajectory", "crossed", "runs", "magnitudes"})
_FEW: Final = 6
"""Entries of a list that are shown before "and more"."""


def render(result: Result, page: Page) -> str:
    """Return the whole report, or only its first line where the page wants no more than the verdict."""
    sheet = Sheet(page)
    verdict = f"{result.verdict.value.upper()}  "
    style = _VERDICT_STYLES[result.verdict]
    sheet.say(words.headline(result), style="bold", lead=verdict, lead_style=style, indent=0)
    if page.detail is Detail.VERDICT or result.verdict is Verdict.ERROR:
        return sheet.text
    few = None if page.detail is Detail.ALL else _FEW
    _first_divergence(sheet, result)
    _cause(sheet, result)
    _magnitudes(sheet, result, few)
    _trajectory(sheet, result, few)
    _findings(sheet, result, few)
    _compared(sheet, result)
    _crossed(sheet, result)
    _not_judged(sheet, result)
    _facts(sheet, result, page.detail)
    _environment(sheet, result)
    return sheet.text


def _first_divergence(sheet: Sheet, result: Result) -> None:
    first = result.first_divergence
    if first is None:
        return
    sheet.title("First divergence")
    sheet.say(words.moment(first.step, first.stage))
    if what := ", ".join(p for p in (words.thing(first.parameter, first.key), words.binding(first)) if p):
        sheet.say(what)
    numbers = _numbers_at(result, first)
    if said := words.magnitude(numbers):
        sheet.say(said)
    if reason := numbers.get("reason"):
        sheet.say(f"no magnitudes: {words.scalar(reason)}", style="dim")


def _numbers_at(result: Result, first: Place) -> Mapping[str, Json]:
    spot = (first.step, first.stage, first.parameter, first.key)
    for entry in _entries(result, "magnitudes"):
        if (entry.get("step"), entry.get("stage"), entry.get("parameter"), entry.get("key")) == spot:
            return entry
    cause = words.cause_finding(result)
    return cause.evidence if cause else {}


def _cause(sheet: Sheet, result: Result) -> None:
    if result.cause is None:
        return
    finding = words.cause_finding(result)
    sheet.title("Cause")
    sheet.say(finding.name if finding else "", lead=f"{result.cause.code} ", lead_style="bold red")
    if finding:
        sheet.say(finding.message)
    sheet.say(result.cause.confidence, lead="confidence: ", lead_style="dim")
    if finding and (said := _said(finding)):
        sheet.say(said, lead="evidence: ", lead_style="dim")
    if finding and finding.fix:
        sheet.title("What to do")
        sheet.say(finding.fix)


def _said(finding: Finding) -> str:
    """Return the evidence that fits a line: plain values and short lists of them."""
    short = {key: value for key, value in finding.evidence.items() if not _is_long(value)}
    return ", ".join(f"{key.replace('_', ' ')} {words.scalar(value)}" for key, value in short.items())


def _is_long(value: Json) -> bool:
    return isinstance(value, (list, dict)) and len(json.dumps(value)) > 60


def _magnitudes(sheet: Sheet, result: Result, few: int | None) -> None:
    told = _numbers_at(result, result.first_divergence) if result.first_divergence else None
    entries = [entry for entry in _entries(result, "magnitudes") if words.magnitude(entry) and entry is not told]
    if not entries:
        return
    sheet.title("How far apart, further on")
    for entry in entries[:few]:
        run = f"{words.scalar(entry['run'])}, " if entry.get("run") is not None else ""
        when = words.moment(entry.get("step"), entry.get("stage"))
        what = words.thing(entry.get("parameter"), entry.get("key"))
        sheet.say(f"{run}{when}: {what}" if what else f"{run}{when}")
        sheet.say(words.magnitude(entry), indent=4)
    _more(sheet, len(entries), few)


def _trajectory(sheet: Sheet, result: Result, few: int | None) -> None:
    moments: dict[tuple[str, str], dict[str, int]] = {}
    for entry in _entries(result, "trajectory"):
        run, step, stage = (words.scalar(entry.get(key)) for key in ("run", "step", "stage"))
        stages = moments.setdefault((run, step), {})
        stages[stage] = stages.get(stage, 0) + 1
    if not moments:
        return
    sheet.title("Tensors and values that differ, step by step")
    for (run, step), stages in list(moments.items())[:few]:
        said = ", ".join(f"{count} {stage}" for stage, count in stages.items())
        sheet.say(said, lead=f"{run}, step {step}:  ", lead_style="dim")
    _more(sheet, len(moments), few)


def _findings(sheet: Sheet, result: Result, few: int | None) -> None:
    told = words.cause_finding(result)
    others = [finding for finding in result.findings if finding is not told]
    if not others:
        return
    sheet.title("Further findings" if told else "Findings")
    for finding in others[:few]:
        style = _SEVERITY_STYLES[finding.severity]
        sheet.say(finding.message, lead=f"{finding.code} {finding.severity.value}  ", lead_style=style)
        if where := words.place(finding.where):
            sheet.say(where, indent=4, style="dim")
        if few is None and (said := _said(finding)):
            sheet.say(said, indent=4, style="dim")
        if finding.fix:
            sheet.say(finding.fix, lead="to do: ", indent=4)
    _more(sheet, len(others), few)


def _compared(sheet: Sheet, result: Result) -> None:
    if result.command in ("save", "resume"):  # they compare nothing, and do not claim to
        return
    sheet.title("Compared")
    sheet.say(words.compared(result.compared))
    for run in _entries(result, "runs"):
        rest = (f"{key} {words.scalar(value)}" for key, value in run.items() if key not in ("name", "steps", "seconds"))
        steps, seconds = run.get("steps"), run.get("seconds")
        said = [words.counted(steps, "step")] if isinstance(steps, int) else []
        said += [f"{seconds:.1f} s"] if isinstance(seconds, (int, float)) else []
        sheet.say(", ".join([*said, *rest]), lead=f"{words.scalar(run.get('name'))}:  ", lead_style="dim")


def _crossed(sheet: Sheet, result: Result) -> None:
    crossed = result.parts.get("crossed")
    if not isinstance(crossed, Mapping):
        return
    sheet.title("Crossed by the stop")
    for key, label in (("covered", "covered:      "), ("not_covered", "not covered:  ")):
        items = crossed.get(key)
        if isinstance(items, list) and items:
            sheet.say(", ".join(words.scalar(item) for item in items), lead=label, lead_style="dim")


def _not_judged(sheet: Sheet, result: Result) -> None:
    if not result.not_judged:
        return
    codes: dict[str, list[str]] = {}
    for rule in result.not_judged:
        codes.setdefault(rule.reason, []).append(rule.code)
    sheet.title("Not judged")
    for reason, named in codes.items():
        sheet.say(reason, lead=f"{', '.join(named)}:  ", lead_style="yellow")


def _facts(sheet: Sheet, result: Result, detail: Detail) -> None:
    rest = {key: value for key, value in result.parts.items() if key not in _TOLD_ELSEWHERE}
    told = {key: value for key, value in rest.items() if detail is Detail.ALL or not _is_long(value)}
    if not told:
        return
    sheet.title("Settings and outputs")
    for key, value in told.items():
        sheet.say(words.scalar(value), lead=f"{key.replace('_', ' ')}: ", lead_style="dim")


def _environment(sheet: Sheet, result: Result) -> None:
    if result.environment:
        said = ", ".join(f"{key} {words.scalar(value)}" for key, value in result.environment.items())
        sheet.gap()
        sheet.say(said, style="dim", lead="environment: ", lead_style="dim", indent=0)


def _more(sheet: Sheet, total: int, few: int | None) -> None:
    if few is not None and total > few:
        sheet.say(f"and {total - few} more; -v shows all", style="dim")


def _entries(result: Result, part: str) -> list[Mapping[str, Json]]:
    entries = result.parts.get(part)
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []

"""What a project lives with: accepted findings in the first line, and what became of acceptances and of a baseline."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ckptcheck.finding import Finding, Json, Result, Severity, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.sheet import Sheet

_NAMED: Final = 3
"""Accepted codes that the first line names."""


def in_short(result: Result) -> str:
    """Return which findings are accepted and until when, the cause first; "" where none is that could fail anything."""
    cause = words.cause_finding(result)
    weighty = [
        one for one in result.findings
        if one.accepted is not None and (one is cause or one.severity is not Severity.INFO)
        and not words.is_without_effect(one)
    ]  # fmt: skip
    weighty.sort(key=lambda one: (one is not cause, [*Severity].index(one.severity)))
    said = list(dict.fromkeys(_named(one) for one in weighty))
    rest = f" and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return f"accepted: {'; '.join(said[:_NAMED])}{rest}" if said else ""


def is_by_its_cause(result: Result) -> bool:
    """Tell whether an experiment passes though it diverges: its cause is accepted."""
    return result.verdict is Verdict.PASS and result.cause is not None


def standing(result: Result) -> Result:
    """Return the result without what is accepted, as a first line is about the rest."""
    cause = words.cause_finding(result)
    left = tuple(one for one in result.findings if one.accepted is None)
    if cause is not None and cause.accepted is not None:
        return replace(result, findings=left, cause=None, first_divergence=None)
    return replace(result, findings=left)


def _named(one: Finding) -> str:
    told = one.accepted
    assert told is not None
    how = f"until {told.until}" if told.until is not None else f"by the {told.source}" if _is_known(told.source) else ""
    return f"{one.name.replace('-', ' ')} ({one.code}){', ' if how else ''}{how}"


def _is_known(source: str) -> bool:
    return source.startswith("baseline ")


def acceptances(sheet: Sheet, result: Result, full: bool) -> None:
    """Say which acceptances have expired, how the findings stand to the baseline, and which acceptance met nothing."""
    told = result.parts.get("acceptances")
    if not isinstance(told, Mapping):
        return
    label = "Expired"
    for one in _rows(told.get("expired")):
        count = one.get("findings")
        if isinstance(count, int) and (count or full):
            what = f"{words.counted(count, 'finding')} no longer accepted" if count else "it meets no finding"
            sheet.row(label, f"until {words.scalar(one.get('until'))}: {what}: {_why(one)}", lead=f"{_what(one)} ")
            label = ""
    _baseline(sheet, told.get("baseline"), full)
    _written(sheet, told.get("written"))
    label = "Unused"
    for one in _rows(told.get("unused")):
        why = one.get("why")
        if full or why:
            said = f"does not accept it: {words.scalar(why)}" if why else "is accepted, and was not found"
            sheet.row(label, f"{said}: {_why(one)}", lead=f"{_what(one)} ", style="" if why else "dim")
            label = ""


def _what(one: Mapping[str, Json]) -> str:
    parameter = one.get("parameter")
    return words.scalar(one.get("code")) + (f" in {words.scalar(parameter)}" if parameter is not None else "")


def _why(one: Mapping[str, Json]) -> str:
    return f"{words.scalar(one.get('reason'))} ({words.scalar(one.get('source'))})"


def _baseline(sheet: Sheet, told: Json, full: bool) -> None:
    if not isinstance(told, Mapping):
        return
    gone, count = _rows(told.get("gone")), told.get("findings")
    known = words.counted(count if isinstance(count, int) else 0, "finding")
    said = [f"{known} in {words.scalar(told.get('path'))}"]
    fixed = sum(number for one in gone if isinstance(number := one.get("count"), int))
    if fixed:
        gone_now = f"{fixed} of them {'is' if fixed == 1 else 'are'} gone"
        said.append(f"{gone_now}: write it anew with --write-baseline")
    if unseen := told.get("not_judged"):
        said.append(f"{words.scalar(unseen)} could not be looked for")
    sheet.row("Baseline", "; ".join(said))
    for one in gone if full else ():
        rest = (f"{key} {words.scalar(value)}" for key, value in one.items() if key not in ("code", "count"))
        sheet.row("", ", ".join(rest) or "anywhere", lead=f"{words.scalar(one.get('code'))} gone: ", deeper=True)


def _written(sheet: Sheet, told: Json) -> None:
    if not isinstance(told, Mapping):
        return
    path, count = words.scalar(told.get("path")), told.get("findings")
    if isinstance(count, int):
        sheet.row("Baseline", f"{words.counted(count, 'finding')} written to {path}, and accepted")
    else:
        sheet.row("Baseline", words.scalar(told.get("error")))


def _rows(value: Json) -> list[Mapping[str, Json]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []

"""What a probe says: what moves when a gradient is none or zero, a row an optimizer, and what else it found out."""

from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Result, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.accepted import acceptances
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.findings import FEW, other_findings
from ckptcheck.reports.margin import not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.probed_more import exact, freezing, implementations, keeping, scenarios
from ckptcheck.reports.sheet import Sheet

_CELLS: Final = (
    ("none", "history", "none"),
    ("zero", "history", "zero"),
    ("zero at lr 0", "lr-zero", "zero"),
    ("zero, fresh", "no-history", "zero"),
)
"""Title of a column, and the scenario and gradient that it shows."""
_HEAD: Final = ("Optimizer", *(title for title, _, _ in _CELLS), "State that zeros move")
_NAMES: Final = 3
_RESTING: Final = ("history", "no-history", "rests")
"""Scenarios of a gradient that is none: after a history, without one, and for many steps."""
_IN_TABLE: Final = frozenset(scenario for _, scenario, _ in _CELLS)
_NOT_TRIED: Final = "-"
_LIKE_THE_DEFAULTS: Final = frozenset({"maximize", "differentiable"})
"""Variants that are no news where they move what another one of the same optimizer moves."""


def headline(result: Result) -> str:
    """What a gradient that is none, and one that is zero, do; or what stands against it."""
    if result.verdict is Verdict.INCONCLUSIVE:
        return next((one.reason for one in result.not_judged), "nothing could be probed")
    if result.verdict is Verdict.FAIL:
        return _against(result)
    rows = entries_of(result, "contract")
    if not rows:
        told = entries_of(result, "exact")
        return f"{words.counted(len(told), 'exact transition')} hold" if told else "the contract is kept"
    names = dict.fromkeys(words.scalar(one.get("optimizer")) for one in rows)
    who = words.joined([*names]) if len(names) <= _NAMES else words.counted(len(names), "optimizer")
    return f"{who}: {_in_short(rows)}"


def _against(result: Result) -> str:
    broken = [
        one for one in entries_of(result, "freezing") if one.get("name") == "present" and one.get("keeps") is False
    ]
    if broken:
        first = broken[0]
        return (f"the contract {words.scalar(first.get('contract'))} on {words.scalar(first.get('pattern'))} is broken "
                f"at step {words.scalar(first.get('broken_at'))}")  # fmt: skip
    wrong = [one for one in entries_of(result, "exact") if one.get("passed") is False]
    if wrong and not result.findings:
        return f"{words.counted(len(wrong), 'exact transition')} {'does' if len(wrong) == 1 else 'do'} not hold"
    return words.headline(result)


def _in_short(rows: Sequence[Entry]) -> str:
    """What none and zeros do in all rows with a history, in a phrase."""
    none = [one for one in rows if one.get("scenario") in _RESTING and one.get("grad") == "none"]
    zero = [one for one in rows if one.get("scenario") == "history" and one.get("grad") == "zero"]
    resting = [one for one in none if not _moves(one)]
    first = "a gradient that is none moves nothing, at the first step or later" if len(resting) == len(none) else (
        f"a gradient that is none moves nothing in {len(resting)} of {len(none)} cases"
    )  # fmt: skip
    moved = sum(bool(one.get("param_changed")) for one in zero)
    kept = sum(bool(one.get("state_changed")) for one in zero)
    return f"{first}; zeros move the parameter in {moved} of {len(zero)} cases, its state in {kept}"


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Say the findings, the table, what else was tried, and what was not judged."""
    full = page.detail is Detail.ALL
    other_findings(sheet, result, full, most=FEW)
    acceptances(sheet, result, full)
    sheet.gap()
    freezing(sheet, result, full)
    rows = entries_of(result, "contract")
    if rows:
        sheet.table(_HEAD, _table(rows, full))
        sheet.gap()
    single = len({words.scalar(one.get("optimizer")) for one in rows}) == 1
    if full or single:
        scenarios(sheet, rows, full)
    implementations(sheet, result, full)
    keeping(sheet, result, full)
    exact(sheet, result, full)
    not_judged(sheet, result, full)
    if full:
        _made_with(sheet, rows)


def _table(rows: Sequence[Entry], full: bool) -> list[list[str]]:
    """A row for each optimizer and variant, and for each implementation where they do not agree."""
    cases: dict[tuple[str, str, str], dict[str, list[list[str]]]] = {}
    for one in (row for row in rows if row.get("scenario") in _IN_TABLE):
        name, variant, parameter = (words.scalar(one.get(key)) for key in ("optimizer", "variant", "parameter"))
        implementation = words.scalar(one.get("implementation"))
        told = cases.setdefault((name, variant, parameter), {}).setdefault(implementation, [])
        told.append([words.scalar(one.get("scenario")), words.scalar(one.get("grad")), _cell(one), _state(one)])
    several = len({(name, parameter) for name, _, parameter in cases}) > len({name for name, _, _ in cases})
    shown: list[list[str]] = []
    plain: dict[str, list[list[str]]] = {}
    for (name, variant, parameter), by_implementation in cases.items():
        called = ", ".join(filter(None, (f"{name} {parameter}" if several else name, variant)))
        found = {implementation: _cells(cells) for implementation, cells in by_implementation.items()}
        if all(cell == _NOT_TRIED for cells in found.values() for cell in cells[:-1]):
            continue  # it is told among the scenarios
        alike = len({tuple(cells) for cells in found.values()}) == 1
        if not full and alike and variant in _LIKE_THE_DEFAULTS and next(iter(found.values())) in plain.get(name, ()):
            continue
        plain.setdefault(name, []).extend(found.values())
        for implementation, cells in [*found.items()][: None if full or not alike else 1]:
            shown.append([called if alike and not full else f"{called} [{implementation}]", *cells])
    return shown


def _cells(told: Sequence[Sequence[str]]) -> list[str]:
    by_case = {(scenario, grad): (cell, state) for scenario, grad, cell, state in told}
    cells = [by_case.get((scenario, grad), (_NOT_TRIED, ""))[0] for _, scenario, grad in _CELLS]
    return [*cells, by_case.get(("history", "zero"), ("", ""))[1]]


def _cell(one: Entry) -> str:
    if one.get("raised"):
        return "raises"
    if one.get("param_changed"):
        return "both" if one.get("state_changed") else "value"
    return "state" if one.get("state_changed") else "rests"


def _moves(one: Entry) -> bool:
    return bool(one.get("param_changed") or one.get("state_changed"))


def _state(one: Entry) -> str:
    keys = one.get("state_changed")
    return ", ".join(words.scalar(key) for key in keys) if isinstance(keys, list) else ""


def _made_with(sheet: Sheet, rows: Sequence[Entry]) -> None:
    """On what the steps were made: devices, dtypes and versions."""
    if not rows:
        return
    first = rows[0]
    versions: Json = first.get("versions")
    told = [f"{name} {words.scalar(one)}" for name, one in versions.items()] if isinstance(versions, Mapping) else []
    made = [f"{words.counted(len(rows), 'case')} on {words.scalar(first.get('device'))}, "
            f"{words.scalar(first.get('dtype'))}"]  # fmt: skip
    sheet.row("Made with", ", ".join([*made, *told]), style="dim")

"""What `config` says: every setting in force, and where it comes from."""

import json
from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.page import Page
from ckptcheck.reports.sheet import Sheet

_HEAD: Final = ("Setting", "From", "Value")


def headline(result: Result) -> str:
    """Return which file the settings stand in, and how many of them are not as by default."""
    file = result.parts.get("file")
    if file is None:
        return "no settings: there is no ckptcheck.toml, and no pyproject.toml with [tool.ckptcheck], from here up"
    count = sum(one.get("source") != "default" for one in entries_of(result, "settings"))
    accepted = len(entries_of(result, "accept"))
    said = f"{words.counted(count, 'setting')} from {words.scalar(file)}"
    return f"{said}, {words.counted(accepted, 'acceptance')}" if accepted else said


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write a row for each setting, then the acceptances that are in force, then those that have expired."""
    del page
    rows = [(words.scalar(one.get("key")), _from(one), _value(one)) for one in entries_of(result, "settings")]
    sheet.table(_HEAD, rows)
    sheet.gap()
    for label, in_force in (("Accepted", True), ("Expired", False)):
        for one in entries_of(result, "accept"):
            if one.get("in_force") is in_force:
                _acceptance(sheet, label, one)
                label = ""  # noqa: PLW2901 - said once, above the first


def _from(one: Entry) -> str:
    line = one.get("line")
    return words.scalar(one.get("source")) + (f":{line}" if line is not None else "")


def _value(one: Entry) -> str:
    """The value as TOML has it, or what its absence means."""
    note, value = one.get("note"), one.get("value")
    if note is not None:
        return words.scalar(note)
    return "none" if value in (None, [], {}) else _toml(value)


def _toml(value: Json) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _acceptance(sheet: Sheet, label: str, one: Entry) -> None:
    parameter = f" in {words.scalar(one.get('parameter'))}" if one.get("parameter") is not None else ""
    until = f" until {words.scalar(one.get('until'))}" if one.get("until") is not None else ""
    line = f", line {one.get('line')}" if one.get("line") is not None else ""
    said = f"{words.scalar(one.get('reason'))} ({words.scalar(one.get('source'))}{line})"
    sheet.row(label, said, lead=f"{words.scalar(one.get('code'))}{parameter}{until}: ")

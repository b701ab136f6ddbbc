"""The checkpoints of a run that were held against each other, a row each."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.sheet import Sheet

_SHOWN: Final = 8
"""The newest checkpoints that are shown unless all are wanted."""
_HEAD: Final = ("Checkpoint", "Step", "Updates", "Schedule", "Tensors", "Size", "Note")
_COUNTERS: Final = ("updates", "schedule")


def series(sheet: Sheet, result: Result, full: bool) -> None:
    """Write what each checkpoint of the run is told by, and which were not read."""
    rows = entries_of(result, "series")
    if not rows:
        return
    shown = rows if full else rows[-_SHOWN:]
    sheet.gap()
    sheet.table(*_without_empty(_HEAD, [_row(one) for one in shown]))
    hidden, older = len(rows) - len(shown), result.parts.get("older_not_read")
    said = [f"{words.counted(hidden, 'older one')} (-v shows all)"] if hidden else []
    if isinstance(older, int) and older:
        said.append(f"{words.counted(older, 'older one')} that {'was' if older == 1 else 'were'} not read")
    if said:
        sheet.say(f"and {words.joined(said)}")
    sheet.gap()


def _row(one: Entry) -> list[str]:
    counters = one.get("counters")
    told: Mapping[str, Json] = counters if isinstance(counters, Mapping) else {}
    size = one.get("bytes")
    return [
        words.scalar(one.get("path")).rstrip("/").rpartition("/")[2],
        _number(one.get("step")),
        *(_number(told.get(key)) for key in _COUNTERS),
        _number(one.get("parameters")),
        words.size(size) if isinstance(size, int) else "",
        _note(one),
    ]


def _note(one: Entry) -> str:
    """What is to be said of a checkpoint beside its numbers."""
    if one.get("not_read"):
        return f"not read: {words.scalar(one.get('not_read'))}"
    damage = one.get("damage")
    if isinstance(damage, list) and damage:
        return "damaged"
    return "checked" if one.get("checked") else ""


def _number(value: Json) -> str:
    """A count as it is; a float that is whole without its point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else words.exact(value)


def _without_empty(head: tuple[str, ...], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The table without columns in which nothing stands; the first and the last stay."""
    last = len(head) - 1
    kept = [place for place in range(len(head)) if place in (0, last) or any(row[place] for row in rows)]
    return [head[place] for place in kept], [[row[place] for place in kept] for row in rows]

"""How the divergence grows: for the tensors furthest apart, the relative L2 at a few steps, aligned."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from rich.cells import cell_len

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of, named
from ckptcheck.reports.page import Detail, Page, escaped
from ckptcheck.reports.sheet import Sheet

_SECTIONS: Final = (("param", 3, 10), ("state", 1, 5), ("grad", 0, 3), ("buffer", 1, 3))
"""Sections with how many of their tensors are shown, and how many where all is wanted."""
_MARGIN: Final = 13
_GAP: Final = "  "
_HEAD: Final = "rel L2 after step"


def drift(sheet: Sheet, result: Result, page: Page) -> bool:
    """Say how far the worst tensors are apart at a few steps, in the run that parts first; False where nobody knows."""
    run = _first_run(result)
    steps = run.get("steps")
    if not isinstance(steps, list) or not steps:
        return False
    worst = [one for section, few, many in _SECTIONS
             for one in _worst(run, section)[: many if page.detail is Detail.ALL else few]]  # fmt: skip
    if not worst:
        return False
    _write(sheet, page, worst, steps)
    left_out = run.get("left_out")
    if page.detail is Detail.ALL and isinstance(left_out, Mapping):
        sheet.row("", words.scalar(left_out.get("reason")), style="dim")
    return True


def _first_run(result: Result) -> Entry:
    """The part of the run that the report is about."""
    runs = entries_of(result, "divergence")
    first = next((one.get("run") for one in entries_of(result, "trajectory")), None)
    told = [one for one in runs if one.get("tensors")]
    return next((one for one in told if one.get("run") == first), told[0] if told else {})


def _worst(run: Entry, section: str) -> list[Entry]:
    """The tensors of a section that have a relative distance, the greatest first."""
    tensors = run.get("tensors")
    found = [one for one in (tensors if isinstance(tensors, list) else ())
             if isinstance(one, Mapping) and one.get("section") == section]  # fmt: skip
    sized = [(max(map(_size, values), default=0.0), one)
             for one in found if isinstance(values := one.get("rel_l2"), list)]  # fmt: skip
    return [one for size, one in sorted(sized, key=lambda pair: -pair[0]) if size]


def _size(value: Json) -> float:
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else math.inf
    return math.inf if value in ("inf", "nan") else 0.0


def _at(entry: Entry, steps: Sequence[Json], step: Json) -> str:
    """The relative distance of a tensor after a step; a dash where there is none."""
    own, values = entry.get("steps"), entry.get("rel_l2")
    told = own if isinstance(own, list) else steps
    place = told.index(step) if step in told else None
    value = values[place] if place is not None and isinstance(values, list) and place < len(values) else None
    return "-" if value is None else words.scalar(value)


def _write(sheet: Sheet, page: Page, worst: Sequence[Entry], steps: Sequence[Json]) -> None:
    """A small table beside the label, with fewer steps where the page is narrow; in words where no table fits."""
    last = len(steps) - 1
    rows: list[list[str]] = []
    for places in ({0, 1, 9, last // 2, last}, {0, last // 2, last}, {0, last}):
        shown = [steps[place] for place in sorted(places) if place <= last]
        rows = [[_HEAD, *map(words.scalar, shown)], *([named(one), *(_at(one, steps, step) for step in shown)]
                                                      for one in worst)]  # fmt: skip
        rows = [[escaped(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        if _MARGIN + sum(widths) + len(_GAP) * (len(widths) - 1) <= page.width:
            for place, row in enumerate(rows):
                sheet.row("" if place else "Drift", _GAP.join(_aligned(row, widths)))
            return
    sheet.row("Drift", _HEAD)
    for name, *values in rows[1:]:
        told = (f"{step}: {value}" for step, value in zip(rows[0][1:], values, strict=True))
        sheet.row("", ", ".join(told), lead=f"{name}: ", deeper=True)


def _aligned(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    blanks = [" " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
    return [row[0] + blanks[0], *(blank + cell for blank, cell in zip(blanks[1:], row[1:], strict=True))]

"""Which parameters had a gradient in which step: none, zero or nonzero, where everything is told of a run."""

from collections.abc import Mapping
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.sheet import Sheet

_NAMED: Final = 3
"""Parameters of a row that are named."""
_LETTERS: Final = 60
"""Steps of a row that are shown."""
_ROWS: Final = 12


def gradients(sheet: Sheet, result: Result, full: bool) -> None:
    """Write, for parameters that share it, a letter a step: of the left run, and of the right one where it differs."""
    for run in entries_of(result, "gradients") if full else ():
        rows = _rows(run)
        if not rows:
            continue
        legend = run.get("letters")
        told = legend.items() if isinstance(legend, Mapping) else ()
        used = {letter for row in rows for side in ("left", "right", "frozen") for letter in _letters(row, side)}
        meant = ", ".join(
            f"{letter} {words.scalar(name)}" for letter, name in told if letter.strip() and letter in used
        )
        sheet.gap()
        sheet.row("Gradients", f"{_which(run)}: {meant}" if meant else _which(run))
        for row in rows[:_ROWS]:
            _write(sheet, row)
        if len(rows) > _ROWS:
            sheet.row("", f"and {words.counted(len(rows) - _ROWS, 'row')} more (in the page and the JSON)", style="dim")


def _which(run: Entry) -> str:
    steps, every = run.get("steps"), run.get("every")
    of = [words.scalar(one) for one in steps] if isinstance(steps, list) else []
    shown = of if len(of) <= _LETTERS else of[:_LETTERS]
    often = f"every {every} steps" if isinstance(every, int) and every > 1 else "a step"
    return f"a letter {often}, from step {shown[0]} to {shown[-1]}" if shown else "of no step"


def _rows(run: Entry) -> list[Mapping[str, Json]]:
    rows = run.get("rows")
    return [one for one in rows if isinstance(one, Mapping)] if isinstance(rows, list) else []


def _letters(row: Mapping[str, Json], side: str) -> str:
    letters = row.get(side)
    return letters[:_LETTERS] if isinstance(letters, str) else ""


def _write(sheet: Sheet, row: Mapping[str, Json]) -> None:
    names = row.get("parameters")
    members = [words.scalar(one) for one in names] if isinstance(names, list) else []
    more = [words.counted(len(members) - _NAMED, "more", "more")] if len(members) > _NAMED else []
    sides = {side: letters for side in ("left", "right", "frozen") if (letters := _letters(row, side))}
    told = (letters if len(sides) == 1 else f"{side} {letters}" for side, letters in sides.items())
    contract = row.get("contract")
    ends = f" ({words.scalar(contract)})" if contract else ""
    sheet.row("", "; ".join(told) + ends, lead=f"{words.joined([*members[:_NAMED], *more])}: ", deeper=True)

"""What `explain` says: a rule's card, or a line of each rule."""

from typing import Final

from ckptcheck.finding import Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.page import Page
from ckptcheck.reports.sheet import Sheet

_PARTS: Final = ("what", "why", "example", "fix", "limits")


def headline(result: Result) -> str:
    """The one rule, or how many there are."""
    cards = entries_of(result, "cards")
    if len(cards) != 1:
        return words.counted(len(cards), "rule")
    return f"{_of(cards[0], 'code')} {_of(cards[0], 'name')} ({_of(cards[0], 'severity')})"


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Write what stands below the headline."""
    del page
    cards = entries_of(result, "cards")
    if len(cards) == 1:
        _card(sheet, cards[0])
        return
    rows = [(_of(one, "code"), _of(one, "severity"), f"{_of(one, 'name')}: {_of(one, 'what')}") for one in cards]
    sheet.table(("Code", "Severity", "What it finds"), rows)
    sheet.gap()
    sheet.row("More", "ckptcheck explain CODE shows a rule's card", style="dim")


def _card(sheet: Sheet, card: Entry) -> None:
    for part in _PARTS:
        sheet.row(part.capitalize(), _of(card, part))
    commands = card.get("commands")
    if isinstance(commands, list):
        sheet.row("Judged by", ", ".join(words.scalar(one) for one in commands))
    reports = card.get("reports")
    for place, one in enumerate(reports if isinstance(reports, list) else ()):
        if isinstance(one, dict):
            sheet.row("" if place else "Reports", f"{_of(one, 'said')}:")
            sheet.row("", _of(one, "url"), style="dim", deeper=True)


def _of(entry: Entry, key: str) -> str:
    return words.scalar(entry.get(key))

"""A sheet of wrapped lines: every text that goes onto it is made safe, and none is read as markup."""

from collections.abc import Sequence
from io import StringIO
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ckptcheck.reports.page import Page, escaped

_LABEL: Final = 13
"""Columns that the labels of rows take."""


class Sheet:
    """Collects lines with hanging indents, none wider than the page."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._lines = StringIO()
        self._console = Console(
            file=self._lines,
            width=page.width,
            force_terminal=page.color,
            color_system="standard" if page.color else None,
            no_color=not page.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def gap(self) -> None:
        """Leave a line empty, but never two."""
        if not self.text.endswith("\n\n"):
            self._console.print()

    def row(
        self, label: str, text: str, *, style: str = "", lead: str = "", lead_style: str = "", deeper: bool = False
    ) -> None:
        """Write `text` after `lead`, beside its label; a row that goes on with the one above has the label "".

        What does not fit goes on below. On a narrow page a label has a line of its own.
        """
        margin = _LABEL if self._page.width >= 4 * _LABEL else 2
        label_style = ("dim" if style == "dim" else "bold") if label else ""
        first = Text().append(self._safe(label).ljust(margin), style=label_style)
        if cell_len(first.plain) > margin:
            self._put(first)
            first = Text(" " * margin)
        first.append("  " if deeper else "")
        rest = Text(" " * (cell_len(first.plain) + (2 if lead else 0)))
        self._flow(first, rest, Text().append(self._safe(lead), style=lead_style).append(self._safe(text), style=style))

    def say(self, text: str, *, style: str = "", lead: str = "", lead_style: str = "") -> None:
        """Write `text` after `lead`; what does not fit goes on below the start of `text`.

        A lead that takes more than half of a line is wrapped with the text.
        """
        first = Text().append(self._safe(lead), style=lead_style)
        if 2 * cell_len(first.plain) > self._page.width:
            self._flow(Text(), Text("  "), first.append(self._safe(text), style=style))
            return
        self._flow(first, Text(" " * cell_len(first.plain)), Text(self._safe(text), style=style))

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write rows under a head, all columns but the first and the last to the right; in words where it is too wide.

        The last column is text that may be long; it goes on below itself.
        """
        shown = [[self._safe(cell) for cell in row] for row in (head, *rows)]
        widths = [max(cell_len(row[column]) for row in shown) for column in range(len(head) - 1)]
        margin = sum(widths) + 2 * len(widths)
        if margin + 12 > self._page.width:
            for row in rows:
                told = (f"{title.lower()} {cell}" for title, cell in zip(head[1:], row[1:], strict=True) if cell)
                self.say(", ".join(told), lead=f"{row[0]}: ")
            return
        for place, row in enumerate(shown):
            cells = [_filled(cell, width, right=column > 0) for column, (cell, width) in
                     enumerate(zip(row, widths, strict=False))]  # fmt: skip
            first = Text("  ".join([*cells, ""]), style="" if place else "bold")
            self._flow(first, Text(" " * margin), Text(row[-1], style="" if place else "bold"))

    def _flow(self, first: Text, rest: Text, text: Text) -> None:
        width = max(self._page.width - max(cell_len(first.plain), cell_len(rest.plain)), 10)
        if not self._page.color and text.plain.isascii() and len(text.plain) <= width:
            self._lines.write((first.plain + text.plain).rstrip() + "\n")  # as below; a report can have 20,000 lines
            return
        for line in text.wrap(self._console, width, overflow="fold") or [text]:
            self._put(first + line)
            first = rest

    @property
    def text(self) -> str:
        """All that was written."""
        return self._lines.getvalue()

    def _put(self, line: Text) -> None:
        line.rstrip()
        self._console.print(line, no_wrap=True, overflow="ignore", crop=False)

    def _safe(self, text: str) -> str:
        text = escaped(text)
        return text.encode("ascii", "backslashreplace").decode() if self._page.ascii_only else text


def _filled(cell: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - cell_len(cell))
    return blanks + cell if right else cell + blanks

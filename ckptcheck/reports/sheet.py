"""A sheet of wrapped lines: every text that goes onto it is made safe, and none is read as markup."""

from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ckptcheck.reports.page import Page, escaped


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

    def title(self, text: str) -> None:
        """Begin a section: an empty line and its title."""
        self.gap()
        self.say(text, style="bold", indent=0)

    def gap(self) -> None:
        """Leave a line empty."""
        self._console.print()

    def say(self, text: str, *, style: str = "", lead: str = "", lead_style: str = "", indent: int = 2) -> None:
        """Write `text` after `lead`; what does not fit goes on below the start of `text`.

        A lead that would take more than half of the page gets lines of its own.
        """
        if cell_len(lead) > self._page.width // 2:
            self.say(lead, style=lead_style, indent=indent)
            lead, indent = "", indent + 2
        prefix = Text(" " * indent).append(self._safe(lead), style=lead_style)
        hang = cell_len(prefix.plain)
        for line in self._wrapped(Text(self._safe(text), style=style), self._page.width - hang):
            self._put(prefix + line)
            prefix = Text(" " * hang)

    @property
    def text(self) -> str:
        """All that was written."""
        return self._lines.getvalue()

    def _wrapped(self, text: Text, width: int) -> list[Text]:
        return list(text.wrap(self._console, max(width, 10), overflow="fold")) or [text]

    def _put(self, line: Text) -> None:
        line.rstrip()
        self._console.print(line, no_wrap=True, overflow="ignore", crop=False)

    def _safe(self, text: str) -> str:
        text = escaped(text)
        return text.encode("ascii", "backslashreplace").decode() if self._page.ascii_only else text

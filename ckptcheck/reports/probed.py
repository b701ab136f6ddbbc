"""What a probe says: a table of optimizers and cases, and what else it found out."""

from typing import Final

from ckptcheck.finding import Result
from ckptcheck.reports import words
from ckptcheck.reports.distances import entries_of
from ckptcheck.reports.findings import other_findings
from ckptcheck.reports.margin import environment, not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet

_SHOWN: Final = ("history", "no-history", "lr-zero")


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """Say the findings, the table, and what was not judged."""
    full = page.detail is Detail.ALL
    other_findings(sheet, result, full)
    for row in entries_of(result, "contract"):
        if full or (row.get("scenario") in _SHOWN and row.get("implementation") == "for"):
            sheet.row(words.scalar(row.get("optimizer")), words.scalar(row.get("scenario")))
    not_judged(sheet, result, full)
    environment(sheet, result, full)

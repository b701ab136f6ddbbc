"""From results to the document of a format: one valid document, however many results there are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.table import REPORTS, TOGETHER

_WITH_CARDS: Final = frozenset({"sarif", "html"})
"""Formats with room for what a rule says of itself."""


def rendered(results: Sequence[Result], form: str, page: Page, titles: Sequence[str] = ()) -> str:
    """Return the document of `results` in a format of the table; a text has its title above it.

    `titles` are one a result, or none.
    """
    if form in _WITH_CARDS and not page.cards:
        page = replace(page, cards=_cards())
    if len(results) != 1 and form in TOGETHER:
        return TOGETHER[form](results, page)
    reports = [REPORTS[form](result, page) for result in results]
    if form == "text" and titles:
        reports = [f"{title}\n{report}" for title, report in zip(titles, reports, strict=True)]
    return ("\n" if form == "text" and page.detail is not Detail.VERDICT else "").join(reports)


def _cards() -> Mapping[str, Mapping[str, Json]]:
    from ckptcheck.verdict.explaining import explain

    rows = explain().parts["cards"]
    return {str(row["code"]): row for row in rows if isinstance(row, dict)} if isinstance(rows, list) else {}

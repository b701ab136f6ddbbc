"""The kept reports: file name, what it is made from. `python -m tests.reports.golden_cases` writes them anew."""

from pathlib import Path

from ckptcheck.finding import Result
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.table import REPORTS
from tests.reports.check_results import DEMANDED, FIT, FLOODED, INCOMPLETE, RELEASED, UNNAMED, UNTRIED
from tests.reports.check_results import WARNED as CHECKED_WITH_WARNINGS
from tests.reports.checkpoint_results import (
    DAMAGED,
    DIFFERENT,
    GATED,
    INSPECTED,
    MATCHING,
    NOTHING,
    WHOLE,
    hostile,
)
from tests.reports.results import APART, BROKEN, CLEAN, HOSTILE, NOISY, RAISED, REFUSED, SAVED

FOLDER = Path(__file__).parent / "golden"
CASES: dict[str, tuple[str, Result, Page]] = {
    "clean_80.txt": ("text", CLEAN, Page(width=80)),
    "clean_80_all.txt": ("text", CLEAN, Page(width=80, detail=Detail.ALL)),
    "broken_60.txt": ("text", BROKEN, Page(width=60)),
    "broken_120.txt": ("text", BROKEN, Page(width=120)),
    "broken_120_all.txt": ("text", BROKEN, Page(width=120, detail=Detail.ALL)),
    "broken_quiet.txt": ("text", BROKEN, Page(detail=Detail.VERDICT)),
    "raised_80.txt": ("text", RAISED, Page(width=80)),
    "apart_80.txt": ("text", APART, Page(width=80)),
    "saved_80.txt": ("text", SAVED, Page(width=80)),
    "saved_80_all.txt": ("text", SAVED, Page(width=80, detail=Detail.ALL)),
    "noisy_100.txt": ("text", NOISY, Page()),
    "refused.txt": ("text", REFUSED, Page()),
    "hostile_ascii.txt": ("text", HOSTILE, Page(ascii_only=True)),
    "matching_80.txt": ("text", MATCHING, Page(width=80)),
    "different_100.txt": ("text", DIFFERENT, Page(top=3)),
    "different_40.txt": ("text", DIFFERENT, Page(width=40)),
    "different_100_all.txt": ("text", DIFFERENT, Page(detail=Detail.ALL)),
    "different_quiet.txt": ("text", DIFFERENT, Page(detail=Detail.VERDICT)),
    "different_hostile_ascii.txt": ("text", hostile(DIFFERENT), Page(ascii_only=True)),
    "nothing_80.txt": ("text", NOTHING, Page(width=80)),
    "gated_100.txt": ("text", GATED, Page()),
    "inspected_100.txt": ("text", INSPECTED, Page()),
    "inspected_100_all.txt": ("text", INSPECTED, Page(detail=Detail.ALL)),
    "inspected_quiet.txt": ("text", INSPECTED, Page(detail=Detail.VERDICT)),
    "inspected_hostile_ascii.txt": ("text", hostile(INSPECTED), Page(ascii_only=True, detail=Detail.ALL)),
    "whole_80.txt": ("text", WHOLE, Page(width=80)),
    "damaged_80.txt": ("text", DAMAGED, Page(width=80)),
    "incomplete_80.txt": ("text", INCOMPLETE, Page(width=80)),
    "incomplete_100_all.txt": ("text", INCOMPLETE, Page(detail=Detail.ALL)),
    "incomplete_40.txt": ("text", INCOMPLETE, Page(width=40)),
    "incomplete_hostile_ascii.txt": ("text", hostile(INCOMPLETE), Page(ascii_only=True)),
    "warned_80.txt": ("text", CHECKED_WITH_WARNINGS, Page(width=80)),
    "fit_80.txt": ("text", FIT, Page(width=80)),
    "fit_40_all.txt": ("text", FIT, Page(width=40, detail=Detail.ALL)),
    "fit_hostile_ascii.txt": ("text", hostile(FIT), Page(ascii_only=True, detail=Detail.ALL)),
    "fit.json": ("json", FIT, Page()),
    "unnamed_80.txt": ("text", UNNAMED, Page(width=80)),
    "untried_80.txt": ("text", UNTRIED, Page(width=80)),
    "flooded_80.txt": ("text", FLOODED, Page(width=80)),
    "released_quiet.txt": ("text", RELEASED, Page(detail=Detail.VERDICT)),
    "demanded_80.txt": ("text", DEMANDED, Page(width=80)),
    "broken.xml": ("junit", BROKEN, Page()),
    "broken.sarif": ("sarif", BROKEN, Page()),
    "broken.github": ("github", BROKEN, Page()),
    "broken.md": ("markdown", BROKEN, Page()),
    "hostile.xml": ("junit", HOSTILE, Page()),
    "hostile.sarif": ("sarif", HOSTILE, Page()),
    "hostile.github": ("github", HOSTILE, Page()),
    "hostile.md": ("markdown", HOSTILE, Page()),
    "noisy.xml": ("junit", NOISY, Page()),
    "refused.sarif": ("sarif", REFUSED, Page()),
    "different.json": ("json", DIFFERENT, Page()),
    "broken.json": ("json", BROKEN, Page()),
    "hostile.json": ("json", HOSTILE, Page()),
}


def rendered(name: str) -> str:
    """Return the report of a case."""
    form, result, page = CASES[name]
    return REPORTS[form](result, page)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        (FOLDER / case).write_text(rendered(case), encoding="utf-8", newline="\n")

"""From a result to what is seen: stdout, report files, exit code."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.cli.options import View
from ckptcheck.cli.streams import write_file, write_out
from ckptcheck.errors import OutputError
from ckptcheck.finding import EXIT_FAIL, EXIT_PASS, FAIL_ON, Result, Verdict
from ckptcheck.reports import json
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.table import REPORTS

_ON_INCONCLUSIVE: Final = {"fail": EXIT_FAIL, "pass": EXIT_PASS}


def deliver(result: Result, view: View) -> int:
    """Show a result as wanted and return the exit code."""
    judged = gated(result, view.fail_on)
    show((judged,), view)
    if judged.verdict is Verdict.INCONCLUSIVE and view.on_inconclusive:
        return _ON_INCONCLUSIVE[view.on_inconclusive]
    return judged.exit_code


def gated(result: Result, fail_on: str) -> Result:
    """Turn a pass into a fail where a finding is as severe as `fail_on`; never the other way round."""
    failing = FAIL_ON[fail_on]
    if result.verdict is Verdict.PASS and any(finding.severity in failing for finding in result.findings):
        return replace(result, verdict=Verdict.FAIL)
    return result


def show(results: Sequence[Result], view: View, titles: Sequence[str] = ()) -> None:
    """Write to stdout and to the report files; a text has its title above it. OutputError where one cannot be written.

    `titles` are one a result, or none.
    """
    try:
        for form, path in view.reports:
            write_file(path, _rendered(results, form, Page(detail=_detail(view), top=view.top), titles))
    except OutputError:
        if view.form != "json":  # hours of training shall not be lost; as JSON, the error takes the result's place
            write_out(_rendered(results, view.form, _stdout_page(view), titles))
        raise
    write_out(_rendered(results, view.form, _stdout_page(view), titles))


def _rendered(results: Sequence[Result], form: str, page: Page, titles: Sequence[str]) -> str:
    if form == "json" and len(results) > 1:
        return json.render_many(results)
    reports = [REPORTS[form](result, page) for result in results]
    if form == "text" and titles:
        reports = [f"{title}\n{report}" for title, report in zip(titles, reports, strict=True)]
    return ("" if page.detail is Detail.VERDICT else "\n").join(reports)


def _stdout_page(view: View) -> Page:
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return Page(
        width=max(shutil.get_terminal_size((100, 24)).columns, 20),
        color=_wants_color(view.color),
        ascii_only=not encoding.startswith("utf"),
        detail=_detail(view),
        top=view.top,
    )


def _wants_color(choice: str) -> bool:
    if choice != "auto":
        return choice == "always"
    shown = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return shown and not os.environ.get("NO_COLOR")


def _detail(view: View) -> Detail:
    if view.quiet:
        return Detail.VERDICT
    return Detail.ALL if view.verbose else Detail.NORMAL

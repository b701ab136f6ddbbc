"""From a result to what is seen: stdout, report files, exit code."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.cli.options import View
from ckptcheck.cli.rendering import rendered
from ckptcheck.cli.streams import write_file, write_out
from ckptcheck.errors import OutputError
from ckptcheck.finding import EXIT_FAIL, EXIT_PASS, Result, Verdict, gates
from ckptcheck.reports.page import Detail, Page

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
    if result.verdict is Verdict.PASS and any(gates(finding, fail_on) for finding in result.findings):
        return replace(result, verdict=Verdict.FAIL)
    return result


def show(results: Sequence[Result], view: View, titles: Sequence[str] = (), *, to_stdout: bool = True) -> None:
    """Write to the report files and, if that is wanted, to stdout; a text has its title above it.

    `titles` are one a result, or none. What can be written is; then OutputError where something cannot be.
    """
    troubles = []
    for form, path in view.reports:
        # --quiet is about what one sees now: a file is for later.
        detail = Detail.ALL if view.verbose else Detail.NORMAL
        page = Page(detail=detail, top=view.top, inconclusive_passes=_passes(view))
        try:
            write_file(path, rendered(results, form, page, titles))
        except OutputError as error:
            troubles.append(error)
    troubles += [OutputError(told) for one in results if (told := _unwritten(one))]
    try:
        # Hours of training shall not be lost; but in a format for programs the error takes the result's place.
        if to_stdout and (not troubles or view.form == "text"):
            write_out(rendered(results, view.form, _stdout_page(view), titles))
    except OutputError as error:
        troubles.append(error)
    if troubles:
        raise OutputError(str(troubles[0]), result_is_told=True) from troubles[0]


def _unwritten(result: Result) -> str:
    """Why a baseline of a result that was judged could not be written; "" where it was, or none was wanted."""
    told = result.parts.get("acceptances")
    written = told.get("written") if isinstance(told, dict) else None
    is_judged = result.verdict is not Verdict.INCONCLUSIVE
    return str(written.get("error") or "") if isinstance(written, dict) and is_judged else ""


def _passes(view: View) -> bool:
    return view.on_inconclusive == "pass"


def _stdout_page(view: View) -> Page:
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    return Page(
        width=max(shutil.get_terminal_size((100, 24)).columns, 20),
        color=_wants_color(view.color),
        ascii_only=not encoding.startswith("utf"),
        detail=_detail(view),
        top=view.top,
        inconclusive_passes=_passes(view),
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

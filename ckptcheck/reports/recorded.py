"""What a recording says: how many steps of how many processes, where, and how the command ended."""

from typing import Any

from ckptcheck.finding import Result
from ckptcheck.reports.findings import other_findings
from ckptcheck.reports.margin import environment, not_judged
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.sheet import Sheet


def headline(result: Result) -> str:
    """What was recorded, and where it lies."""
    part: Any = result.parts["recorded"]
    processes = part["processes"]
    steps = "1 step" if part["steps"] == 1 else f"{part['steps']} steps"
    if len({one["steps"] for one in processes}) > 1:
        steps = f"up to {steps}"
    count = "1 process" if len(processes) == 1 else f"{len(processes)} processes"
    broken = [one for one in processes if not one["ended"]]
    rest = "" if not broken else ", which did not come to its end" if len(processes) == 1 else (
        f", {len(broken)} of which did not come to their end"
    )  # fmt: skip
    exit_code = f" (exit code {part['exit_code']})" if part["exit_code"] else ""
    return f"recorded {steps} of {count}{rest}{exit_code} in {part['trace']}"


def body(sheet: Sheet, result: Result, page: Page) -> None:
    """The processes, what the rules say of the loads that were seen, and what the recorder noted."""
    full = page.detail is Detail.ALL
    part: Any = result.parts["recorded"]
    for one in part["processes"]:
        cost = f", {one['cost_s']:.1f} s for the recording" if one["cost_s"] is not None else ""
        sheet.row(f"Rank {one['rank']}", f"{one['steps']} steps in {one['file']}{cost}")
    for note in part["notes"]:
        sheet.row("Note", str(note))
    other_findings(sheet, result, full)
    not_judged(sheet, result, full)
    environment(sheet, result, full)

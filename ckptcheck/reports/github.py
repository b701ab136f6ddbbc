"""Annotations of GitHub Actions: a workflow command a line, the verdict first, then findings, the weightiest first.

GitHub shows ten annotations of a level and step and drops the others unseen; the last one says how many are left out.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ckptcheck.finding import Finding, Result, Severity, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.gating import path_of, shortened, subject, weightiest_first
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.page import Detail, Page, escaped

_MOST: Final = 10
_MESSAGE: Final = 4000
"""Characters of a message; GitHub cuts annotations off well above."""
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
_VERDICTS: Final = {
    Verdict.PASS: "notice", Verdict.FAIL: "error", Verdict.INCONCLUSIVE: "warning", Verdict.ERROR: "error",
}  # fmt: skip


def render(result: Result, page: Page) -> str:
    """Return the lines."""
    level = _VERDICTS[result.verdict]
    if result.verdict is Verdict.INCONCLUSIVE and page.inconclusive_passes:
        level = "notice"
    about = " ".join(filter(None, ("ckptcheck", result.command, subject(result))))
    lines = [_command(level, f"{result.verdict.value.upper()}: {about}", (headline(result),), path_of(result))]
    if page.detail is not Detail.VERDICT:
        lines += _findings(result, level)
    return "".join(f"{line}\n" for line in lines)


def _findings(result: Result, taken: str) -> Iterator[str]:
    """The findings, as many of each level as are shown beside the verdict, whose level is `taken`."""
    by_level: dict[str, list[Finding]] = {}
    for finding, _ in weightiest_first(result):
        by_level.setdefault("notice" if finding.accepted else _LEVELS[finding.severity], []).append(finding)
    for level, findings in by_level.items():
        room = _MOST - (level == taken)
        shown = findings if len(findings) <= room else findings[: room - 1]
        for finding in shown:
            yield _command(level, f"{finding.code} {finding.name}", _said(finding), path_of(result, finding))
        if hidden := findings[len(shown) :]:
            more = f"and {words.counted(len(hidden), 'finding')} more of this level: see the result as JSON or Markdown"
            yield _command(level, f"{len(hidden)} more", (more,), "")


def _said(finding: Finding) -> list[str]:
    lines = (finding.message, words.accepted(finding), f"To do: {finding.fix}" if finding.fix else "")
    return [line for line in lines if line]


def _command(level: str, title: str, lines: Sequence[str], path: str) -> str:
    """One workflow command; a file outside of the working folder cannot be shown, and is not named."""
    inside = path and not path.startswith(("/", "~")) and ".." not in path.split("/")
    file = [f"file={_property(escaped(path.removeprefix('./')))}"] if inside else []
    told = ",".join([*file, f"title={_property(escaped(title))}"])
    return f"::{level} {told}::{_data(shortened(chr(10).join(map(escaped, lines)), _MESSAGE))}"


def _data(text: str) -> str:
    """What ends a line or begins an escape, as the runner undoes it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """The same for a value among properties, which a comma ends and a colon could end."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")

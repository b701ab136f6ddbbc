"""Markdown for a pull-request comment or a job summary: verdict, cause, first divergence, findings, then the rest.

A comment may have 65,536 characters; what does not fit is counted. Nothing that comes from a file is markup there.
"""

import re
from collections.abc import Sequence
from typing import Final

from ckptcheck.finding import Finding, Result, Verdict
from ckptcheck.reports import distances, text, words
from ckptcheck.reports.gating import shortened, spot, subject, weightiest_first
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.page import Detail, Page, escaped

LIMIT: Final = 60_000
"""Characters of a whole document, with room for what whoever posts it adds."""
_CELL: Final = 400
_OPEN: Final = 15
"""Findings that are seen without unfolding."""
_WITHOUT_VERDICT: Final = frozenset({"inspect", "record", "explain", "config"})
_SHARES: Final = (0.6, 0.15)
"""Of the room: for findings, and for what was not judged; the whole text gets what is left."""
_MARKUP: Final = r"""[\\`*\[\]<>&|~$"']|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])"""
"""What can begin or end markup, a tag or a cell; an underscore inside of a word is none."""
_LINK: Final = r"://|(?i:\bwww\.|\bmailto:|\bxmpp:)"
"""What makes a link of the text around it."""
_REFERENCE: Final = r"@(?=\w)|\#(?=\d)|(?i:\bGH-)(?=\d)"
"""What calls a person or points to an issue; that is read off the page, where a character reference does not help."""
_ACTIVE: Final = re.compile(f"(?P<reference>{_REFERENCE})|{_MARKUP}|{_LINK}")


def render(result: Result, page: Page) -> str:
    """Return the document of one result."""
    return render_many((result,), page)


def render_many(results: Sequence[Result], page: Page) -> str:
    """Return one document with a section for each result, which share its room."""
    room = LIMIT // max(1, len(results))
    return "\n".join(_section(result, page, room) for result in results)


def _section(result: Result, page: Page, room: int) -> str:
    about = subject(result)
    verdict = "" if result.command in _WITHOUT_VERDICT else f"{result.verdict.value.upper()}: "
    lines = [
        f"### {verdict}ckptcheck {_plain(result.command)}" + (f" {_code(about)}" if about else ""),
        "",
        f"**{_plain(headline(result) or result.verdict.value, 1000)}**",
        "",
    ]
    if page.detail is Detail.VERDICT or result.verdict is Verdict.ERROR:
        return "\n".join(lines)
    lines += _cause(result)
    head = "\n".join(lines)
    findings = _findings(result, int(room * _SHARES[0]))
    judged = _not_judged(result, int(room * _SHARES[1]))
    told = "\n".join(filter(None, (head, findings, judged)))
    return told + _whole(result, page, room - len(told) - 100)


def _cause(result: Result) -> list[str]:
    """The cause and where it shows first, with the numbers there."""
    said = []
    finding, first = words.cause_finding(result), result.first_divergence
    if result.cause is not None:
        name = f"{result.cause.code} {finding.name if finding else ''}".strip()
        what = f": {_plain(finding.message, 1000)}" if finding else ""
        said.append(f"- **Cause**: {_plain(name)} ({result.cause.confidence}){what}")
    if finding is not None and finding.fix:
        said.append(f"- **To do**: {_plain(finding.fix, 1000)}")
    if first is not None:
        numbers = distances.numbers_at(result, first)
        where = spot(first)
        far = distances.distance(numbers)
        told = [_plain(words.when(first)), _code(where) if where else "", _plain(far)]
        said.append("- **First divergence**: " + ", ".join(one for one in told if one))
    if result.compared.bytes or result.compared.steps:
        said.append(f"- **Compared**: {words.compared(result.compared)}")
    return [*said, ""] if said else []


def _findings(result: Result, room: int) -> str:
    """The table of findings: rows as long as there is room, then how many more."""
    if not result.findings:
        return ""
    head = ["| | Finding | Where | What to do |", "|---|---|---|---|"]
    rows, left = list[str](), room - 400
    pairs = weightiest_first(result)
    for finding, fails in pairs:
        row = _row(finding, fails)
        if left < len(row) + 1:
            break
        rows.append(row)
        left -= len(row) + 1
    parts = ["\n".join([*head, *rows[:_OPEN], ""])]
    if folded := rows[_OPEN:]:
        parts.append(_folded(f"{words.counted(len(folded), 'finding')} more", "\n".join([*head, *folded])))
    if hidden := len(pairs) - len(rows):
        parts.append(f"And {words.counted(hidden, 'finding')} more that do not fit here: see the result as JSON.\n")
    return "\n".join(parts)


def _row(finding: Finding, fails: bool) -> str:
    weight = "accepted" if finding.accepted else finding.severity.value
    what = f"{_plain(f'{finding.code} {finding.name}')}: {_plain(finding.message)}"
    if finding.accepted is not None:
        what += f" *({_plain(words.accepted(finding))})*"
    where = [_plain(words.when(finding.where)), _code(place) if (place := spot(finding.where)) else ""]
    cells = (
        f"**{weight}**" if fails else weight,
        what,
        ", ".join(one for one in where if one),
        _plain(finding.fix),
    )
    return f"| {' | '.join(cells)} |"


def _not_judged(result: Result, room: int) -> str:
    """Which rules lacked what they need, a line a reason."""
    codes: dict[str, list[str]] = {}
    for rule in result.not_judged:
        codes.setdefault(rule.reason, []).append(rule.code)
    lines, left = list[str](), room - 400
    for reason, named in codes.items():
        line = f"- {_plain(', '.join(named))}: {_plain(reason)}"
        if left < len(line) + 1:
            lines.append(f"- and {len(codes) - len(lines)} more")
            break
        lines.append(line)
        left -= len(line) + 1
    count = len({rule.code for rule in result.not_judged})
    return _folded(f"{words.counted(count, 'rule')} not judged", "\n".join(lines)) if lines else ""


def _whole(result: Result, page: Page, room: int) -> str:
    """The text as a terminal shows it, folded; its end is left out where there is no room for it."""
    lines = text.render(result, Page(top=page.top)).splitlines()
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", "\n".join(lines))), default=0))
    kept, left = list[str](), room - 2 * len(fence) - 200
    for line in lines:
        if left < len(line) + 1:
            break
        kept.append(line)
        left -= len(line) + 1
    if not kept:
        return ""
    if hidden := len(lines) - len(kept):
        kept.append(f"... and {words.counted(hidden, 'line')} more")
    return "\n" + _folded("Whole report", "\n".join([f"{fence}text", *kept, fence]))


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>\n"


def _plain(said: str, most: int = _CELL) -> str:
    """Text in which nothing is markup, a link, a mention or a reference to an issue."""
    return _ACTIVE.sub(_disarmed, shortened(escaped(said), most))


def _disarmed(found: re.Match[str]) -> str:
    if found["reference"]:
        return f"{found[0]}&#8203;"
    return "".join(c if c.isalnum() else f"&#{ord(c)};" for c in found[0])


def _code(said: str) -> str:
    """A name in the type of code; not between backticks, which a pipe or a backtick in it would end."""
    return f"<code>{_plain(said)}</code>"

"""The result as JSON, schema 1: ASCII only, keys in a fixed order, no bare nan or inf."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final
from uuid import uuid4

from ckptcheck import __version__
from ckptcheck.finding import SCHEMA, Finding, Json, Place, Result, Verdict
from ckptcheck.reports.page import Page

_DIVERGENCE: Final = ("step", "stage", "parameter", "key", "optimizer", "group", "rank")
"""Keys of `first_divergence`, all of them always there; null where one does not apply."""
_IN_LINES: Final = frozenset({"divergence", "stages", "gradients", "membership"})
"""Parts whose lists of numbers are lines: 200,000 of them would be as many lines."""


def render(result: Result, page: Page) -> str:
    """Return the document; it is the same on every page."""
    del page
    return dumped(document(result))


def render_many(results: Sequence[Result], page: Page) -> str:
    """Return one document that is a list of results, for a command that has several."""
    del page
    return dumped([document(result) for result in results])


def document(result: Result) -> dict[str, Json]:
    """Return what is written, as plain JSON values."""
    frame: dict[str, Json] = {
        "schema": SCHEMA,
        "tool": {"name": "ckptcheck", "version": __version__},
        "command": result.command,
        "verdict": result.verdict.value,
        "compared": {f.name: getattr(result.compared, f.name) for f in fields(result.compared)},
        "first_divergence": _divergence(result.first_divergence),
        "cause": {"code": result.cause.code, "confidence": result.cause.confidence} if result.cause else None,
        "findings": [_finding(finding) for finding in result.findings],
        "not_judged": [{"code": rule.code, "reason": rule.reason} for rule in result.not_judged],
        "environment": plain(result.environment),
    }
    frame |= {name: plain(part) for name, part in result.parts.items() if name not in frame}
    if result.verdict is Verdict.ERROR:
        frame["error"] = result.error
    return frame


def plain(value: Any) -> Json:
    """Return `value` as JSON has it: tuples become lists, numbers that are not finite "nan", "inf", "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"a result holds a {type(value).__name__}, which JSON has no form for")


def dumped(value: Json) -> str:
    """Return plain JSON values as a document: ASCII, indented, ending in a newline."""
    mark, columns = uuid4().hex, list[str]()
    text = json.dumps(_with_marks(value, mark, columns), indent=2, allow_nan=False)
    if columns:
        text = re.sub(f'"{mark} ([0-9]+)"', lambda found: columns[int(found[1])], text)
    # ASCII and no DEL: names that come from a file must not reach a terminal raw through `cat` either.
    return text.replace("\x7f", "\\u007f") + "\n"


def _finding(finding: Finding) -> Json:
    """One finding; `accepted` is there only where it does not gate."""
    written: dict[str, Json] = {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "where": _where(finding.where),
        "evidence": plain(finding.evidence),
        "fix": finding.fix,
    }
    if (accepted := finding.accepted) is not None:
        written["accepted"] = {f.name: getattr(accepted, f.name) for f in fields(accepted)}
    return written


def _where(place: Place) -> dict[str, Json]:
    values = {f.name: getattr(place, f.name) for f in fields(place)}
    return {name: value for name, value in values.items() if value is not None}


def _divergence(place: Place | None) -> Json:
    if place is None:
        return None
    return {name: getattr(place, name) for name in _DIVERGENCE}


def _with_marks(value: Json, mark: str, columns: list[str], inside: bool = False) -> Json:
    """The same with a mark for each list of numbers of a divergence, which goes to `columns` as text of one line."""
    if isinstance(value, dict):
        return {key: _with_marks(one, mark, columns, inside or key in _IN_LINES) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    if inside and value and not any(isinstance(one, (list, dict)) for one in value):
        columns.append(json.dumps(value, allow_nan=False))
        return f"{mark} {len(columns) - 1}"
    return [_with_marks(one, mark, columns, inside) for one in value]

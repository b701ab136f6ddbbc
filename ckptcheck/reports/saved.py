"""A saved result read back: what `--format json` wrote, as the results that were rendered then."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, Final

from ckptcheck.errors import UsageError
from ckptcheck.finding import (
    SCHEMA,
    Accepted,
    Cause,
    Compared,
    Finding,
    NotJudged,
    Place,
    Result,
    Severity,
    Verdict,
)
from ckptcheck.reports.schema import Check, Trouble, checker

MAX_BYTES: Final = 1 << 30
"""A result is not larger; what is may be anything."""
_FRAME: Final = frozenset({
    "schema", "tool", "command", "verdict", "compared", "first_divergence", "cause", "findings", "not_judged",
    "environment", "error",
})  # fmt: skip
_DEPTH: Final = 40
"""Levels that a result nests at most."""
_DIGITS: Final = 308
"""Decimal digits of the greatest whole number that counts as one."""


def results_of(text: str, name: str) -> tuple[Result, ...]:
    """Return the results that a document holds: one, or several where a command had them.

    `name` is what the document is called. Raises UsageError, in one line, for what is no result of schema 1.
    """
    document = _parsed(text, name)
    _check_version(document, name)
    if (trouble := _check()(document)) is not None:
        raise UsageError(f"{name} is no result of ckptcheck: {_in_words(trouble)}")
    return tuple(_result(one) for one in (document if isinstance(document, list) else [document]))


def _parsed(text: str, name: str) -> Any:
    try:
        document = json.loads(text, parse_constant=_no_constant, parse_int=_whole, parse_float=_finite)
    except RecursionError:
        raise UsageError(f"{name} is no result of ckptcheck: its values nest too deep") from None
    except json.JSONDecodeError as error:
        said = f"{error.msg[:1].lower()}{error.msg[1:]} (line {error.lineno})"
        raise UsageError(f"{name} is no JSON: {said}; give what --report json=FILE wrote") from error
    except ValueError as error:
        raise UsageError(f"{name} is no result of ckptcheck: {error}") from error
    if _nests_beyond(document, _DEPTH):
        raise UsageError(f"{name} is no result of ckptcheck: its values nest too deep")
    return document


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits)} digits is none that a result has")
    return int(digits)


def _finite(said: str) -> float:
    number = float(said)
    if math.isinf(number):
        raise ValueError(f"the number {said[:40]} is too large for any that a result has")
    return number


def _nests_beyond(document: Any, most: int) -> bool:
    """Tell whether lists and objects nest deeper than so many levels."""
    level = [document]
    for _ in range(most):
        inner = [list(one.values()) if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return False
    return True


def _check_version(document: Any, name: str) -> None:
    """Tell a result of a later version, and other JSON, before anything else that is wrong with it."""
    told = document if isinstance(document, list) else [document]
    first = next((one for one in told if isinstance(one, dict)), {})
    tool, version = first.get("tool"), first.get("schema")
    if not isinstance(tool, dict) or tool.get("name") != "ckptcheck" or "schema" not in first:
        raise UsageError(f"{name} is no result of ckptcheck: give what --report json=FILE wrote")
    if isinstance(version, int) and not isinstance(version, bool) and version > SCHEMA:
        raise UsageError(
            f"{name} has schema {str(version)[:20]}, and this version reads schema {SCHEMA}: update ckptcheck"
        )


@cache
def _check() -> Check:
    schema = files("ckptcheck").joinpath("schemas", "result.schema.json").read_text(encoding="utf-8")
    return checker(json.loads(schema))


def _in_words(trouble: Trouble) -> str:
    """What is wrong with its place, as `findings[3].where.step must be ...`."""
    place = ""
    for step in trouble.trail:
        key = str(step) if len(str(step)) <= 60 else f"{str(step)[:60]}..."
        place += f"[{step}]" if isinstance(step, int) else f".{key}" if place else key
    return f"{place or 'it'} {trouble.said}"


def _result(told: Mapping[str, Any]) -> Result:
    cause = told["cause"]
    return Result(
        command=told["command"],
        verdict=Verdict(told["verdict"]),
        compared=Compared(**told["compared"]),
        first_divergence=_first(told),
        cause=Cause(**cause) if cause is not None else None,
        findings=tuple(_finding(one) for one in told["findings"]),
        not_judged=tuple(NotJudged(**one) for one in told["not_judged"]),
        environment=told["environment"],
        parts={name: part for name, part in told.items() if name not in _FRAME},
        error=told.get("error", ""),
    )


def _finding(told: Mapping[str, Any]) -> Finding:
    accepted: Mapping[str, Any] | None = told.get("accepted")
    return Finding(
        code=told["code"],
        name=told["name"],
        severity=Severity(told["severity"]),
        message=told["message"],
        where=Place(**told["where"]),
        evidence=told["evidence"],
        fix=told["fix"],
        accepted=Accepted(**accepted) if accepted is not None else None,
    )


def _first(told: Mapping[str, Any]) -> Place | None:
    """The first divergence, with the path of the finding that stands for the cause there, which JSON leaves out."""
    if told["first_divergence"] is None:
        return None
    first, cause = Place(**told["first_divergence"]), told["cause"]
    there = [Place(**one["where"]) for one in told["findings"] if cause is not None and one["code"] == cause["code"]]
    if first in there:
        return first
    return next((one for one in there if replace(one, path=None) == first), first)

"""A rule's card: what its docstring says, in its parts, and public reports of what it finds."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from ckptcheck.rules.rule import Rule

PARTS: Final = ("Why", "Example", "Fix", "Limits")
"""The parts that follow the first paragraph, each a paragraph that begins with its name."""
REPORTS: Final = Path(__file__).with_name("reports.toml")


@dataclass(frozen=True, slots=True)
class Report:
    """One report of a fault in public: where it stands, and what it tells, in our words."""

    url: str
    said: str


@dataclass(frozen=True, slots=True)
class Card:
    """What a rule says of itself, each part on one line: what, why, an example, how to fix it, limits.

    `reports` are the most telling first; there may be none.
    """

    what: str
    why: str
    example: str
    fix: str
    limits: str
    reports: tuple[Report, ...] = ()


def card_of(rule: Rule[Any]) -> Card:
    """Read a rule's card. ValueError where it lacks a part, or has one twice."""
    found: dict[str, list[str]] = {"What": []}
    part = found["What"]
    for line in cleandoc(rule.card).splitlines():
        name, colon, rest = line.partition(": ")
        if colon and name.strip() in PARTS:
            if name.strip() in found:
                raise ValueError(f"the card of {rule.code} has two parts {name.strip()}")
            part = found.setdefault(name.strip(), [])
            line = rest  # noqa: PLW2901 - the part's name is not of its text
        part.append(line)
    if lacking := [one for one in PARTS if one not in found]:
        raise ValueError(f"the card of {rule.code} has no part {lacking[0]}")
    parts = {one.lower(): _sentence(" ".join(lines)) for one, lines in found.items()}
    return Card(**parts, reports=public_reports().get(rule.code, ()))


def _sentence(text: str) -> str:
    """On one line, with a capital."""
    said = " ".join(text.split())
    return said[:1].upper() + said[1:]


@cache
def public_reports() -> Mapping[str, tuple[Report, ...]]:
    """Public reports by code, from the file beside this one."""
    entries = tomllib.loads(REPORTS.read_text(encoding="utf-8"))
    return {code: tuple(Report(one["url"], one["said"]) for one in told) for code, told in entries.items()}

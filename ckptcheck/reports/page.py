"""What a report is written on, and what must not get onto it."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ckptcheck.finding import Json

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that can steer a terminal, reorder a line or hide in it."""


class Detail(IntEnum):
    """How much of a result is told."""

    VERDICT = 0
    NORMAL = 1
    ALL = 2


@dataclass(frozen=True, slots=True)
class Page:
    """Where a text goes: its width in columns, whether it shows colour, whether it shows only ASCII.

    `top` is how many of the largest differences a section shows, unless all is wanted. `cards` are the cards of rules
    by code, for formats with room for them: each a mapping with the texts `what`, `why`, `example`, `fix`, `limits`;
    empty where nobody has them at hand. `inconclusive_passes` says that the caller takes inconclusive for a pass.
    """

    width: int = 100
    color: bool = False
    ascii_only: bool = False
    detail: Detail = Detail.NORMAL
    top: int = 10
    cards: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    inconclusive_passes: bool = False


def escaped(text: str) -> str:
    r"""Return `text` on one line with everything that steers a terminal spelled out, as `\x1b` or `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(c) if unicodedata.category(c) in _UNSAFE else c for c in text)


def _spelled(character: str) -> str:
    return ascii(character)[1:-1]

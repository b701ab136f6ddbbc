"""How many words of two generators' states differ, read from their texts."""

import re
from dataclasses import dataclass
from typing import Final

from ckptcheck.finding import Json

_HEX_WORD: Final = 8
"""Digits of a word of 32 bits."""
_NUMPY: Final = re.compile(r"\('MT19937', bytes:([0-9a-f]{4992}), (\d+), .*\)", re.DOTALL)
_PYTHON: Final = re.compile(r"'?\(3, \(((?:\d+, ){624})(\d+)\), .*\)'?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Apart:
    """How two states of a Mersenne Twister differ: words of their `words`, and where each stands in them."""

    differing: int
    words: int
    left: str
    right: str


def words_apart(left: Json, right: Json) -> Apart | None:
    """Compare the states of numpy's or python's generator; None for any other, and where neither words nor place do."""
    one, other = _state(left), _state(right)
    if one is None or other is None or one == other:
        return None
    (ours, at), (theirs, there) = one, other
    differing = sum(word != beside for word, beside in zip(ours, theirs, strict=True))
    return Apart(differing, len(ours), f"position {at}", f"position {there}")


def _state(text: Json) -> tuple[list[str], str] | None:
    if not isinstance(text, str):
        return None
    numpy = _NUMPY.fullmatch(text)
    if numpy:
        digits = numpy.group(1)
        return [digits[at : at + _HEX_WORD] for at in range(0, len(digits), _HEX_WORD)], numpy.group(2)
    python = _PYTHON.fullmatch(text)
    return (python.group(1).split(", ")[:-1], python.group(2)) if python else None

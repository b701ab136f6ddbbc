"""Plain values of two checkpoints: numbers, texts, and a number that the other side keeps as a tensor."""

import re
from collections.abc import Sequence
from itertools import starmap
from typing import Final

from ckptcheck.comparison.checkpoint_diff import DiffOptions, Kind
from ckptcheck.comparison.outcomes import Outcome, tolerance_of
from ckptcheck.comparison.pairs import Pair
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Entry, Scalar
from ckptcheck.state.tree import canonical

_SEQUENCE: Final = re.compile(r"(?:(?P<queue>deque)?\[|\()(?P<items>.*?)(?(queue)(?:; \d+)?)[\])]", re.DOTALL)
"""What `canonical` writes of a list, a tuple and a queue, which may have a bound."""
_WHOLE: Final = re.compile(r"-?\d+")
_FLOAT: Final = re.compile(r"-?\d+(?:\.\d+(?:e[+-]\d+)?|e[+-]\d+)")
_MAX_DIGITS: Final = 400
"""No float has more before its point."""


def compare_plain(
    pairs: Sequence[Pair], outcomes: Sequence[Outcome], places: Sequence[int], options: DiffOptions
) -> None:
    """Fill in the outcomes of the pairs at these places, both sides of which are plain values."""
    for place in places:
        left, right = pairs[place].left, pairs[place].right
        if not is_same(left, right) and _told(left) != _told(right):
            _judge(pairs[place], outcomes[place], options)


def compare_mixed(pairs: Sequence[Pair], outcomes: Sequence[Outcome], places: Sequence[int]) -> None:
    """Fill in the outcomes of the pairs at these places, one side of which is a tensor and one a plain value."""
    for place in places:
        left, right = _number(pairs[place].left), _number(pairs[place].right)
        if left is not None and left == right:
            outcomes[place].kept_otherwise = True
        else:
            outcomes[place].kind = Kind.CHANGED


def is_same(left: Entry | None, right: Entry | None) -> bool:
    """Whether two plain values are surely the same, told by their digests."""
    return left is not None and right is not None and left.digest is not None and left.digest == right.digest


def _judge(pair: Pair, outcome: Outcome, options: DiffOptions) -> None:
    left, right = _number(pair.left), _number(pair.right)
    outcome.kind = Kind.CHANGED
    items = _items(pair.left), _items(pair.right)
    if items[0] and items[1]:
        _judge_items(items[0], items[1], outcome)
        return
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return
    rtol, atol = tolerance_of(pair, "float" if isinstance(left, float) else "", options) or (0.0, -1.0)
    if type(left) is not type(right) and left == right:
        outcome.kind, outcome.kept_otherwise = None, True  # 5 and 5.0: another format wrote it
    elif abs(right - left) <= atol + rtol * abs(left):
        outcome.kind, outcome.is_tolerated = None, True


def _judge_items(left: list[str], right: list[str], outcome: Outcome) -> None:
    """Long sequences as short ones, whose items are compared one by one: list and tuple alike, 5 as 5.0."""
    if left == right:
        outcome.kind = None
    elif len(left) == len(right) and all(starmap(_is_same_item, zip(left, right, strict=True))):
        outcome.kind, outcome.kept_otherwise = None, True


def _is_same_item(left: str, right: str) -> bool:
    if left == right:
        return True
    whole, other = (left, right) if _WHOLE.fullmatch(left) else (right, left)
    if not (_WHOLE.fullmatch(whole) and _FLOAT.fullmatch(other)) or len(whole) > _MAX_DIGITS:
        return False
    return int(whole) == float(other)


def _items(entry: Entry | None) -> list[str]:
    """The items' texts of a list, tuple or queue that is one value; empty for anything else."""
    value = _value(entry)
    match = _SEQUENCE.fullmatch(value) if isinstance(value, str) else None
    return match["items"].split(", ") if match else []


def _number(entry: Entry | None) -> bool | int | float | None:
    value = value_of(entry)
    return None if isinstance(value, str) else value


def _told(entry: Entry | None) -> tuple[type, str]:
    value = _value(entry)
    return type(value), canonical(value)


def _value(entry: Entry | None) -> Scalar | None:
    return entry.value if entry is not None else None

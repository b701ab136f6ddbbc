"""Plain values of two checkpoints: numbers, texts, and a number that the other side keeps as a tensor."""

from collections.abc import Sequence
from typing import Final

from ckptcheck.comparison.checkpoint_diff import DiffOptions, Kind
from ckptcheck.comparison.outcomes import Outcome, tolerance_of
from ckptcheck.comparison.pairs import Pair
from ckptcheck.comparison.values import diff_values
from ckptcheck.state.scalars import number_in
from ckptcheck.state.training_state import Entry, Scalar

AT_ONCE: Final = 20_000
"""Values handed to `diff_values` in one call."""


def compare_plain(
    pairs: Sequence[Pair], outcomes: Sequence[Outcome], places: Sequence[int], options: DiffOptions
) -> None:
    """Fill in the outcomes of the pairs at these places, both sides of which are plain values."""
    unlike = [place for place in places if not is_same(pairs[place].left, pairs[place].right)]
    for start in range(0, len(unlike), AT_ONCE):
        part = unlike[start : start + AT_ONCE]
        left = {str(place): _value(pairs[place].left) for place in part}
        right = {str(place): _value(pairs[place].right) for place in part}
        for found in diff_values(left, right):
            _judge(pairs[int(found.path)], outcomes[int(found.path)], options)


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
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return
    rtol, atol = tolerance_of(pair, "", options) or (0.0, -1.0)
    if type(left) is not type(right) and left == right:
        outcome.kind, outcome.kept_otherwise = None, True  # 5 and 5.0: another format wrote it
    elif abs(right - left) <= atol + rtol * abs(left):
        outcome.kind, outcome.is_tolerated = None, True


def _number(entry: Entry | None) -> bool | int | float | None:
    value = _value(entry)
    if value is None and entry is not None and entry.ref is not None:
        value = number_in(entry.ref)
    return None if isinstance(value, str) else value


def _value(entry: Entry | None) -> Scalar | None:
    return entry.value if entry is not None else None

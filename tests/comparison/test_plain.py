"""Plain values side by side: numbers of two kinds, and sequences whose items are."""

from typing import Any

import pytest

from ckptcheck.comparison.checkpoint_diff import DiffOptions, Kind
from ckptcheck.comparison.outcomes import Outcome
from ckptcheck.comparison.pairs import Pair
from ckptcheck.comparison.plain import compare_plain
from tests.comparison.written import number

HUGE = "[" + "9" * 500 + ", 1]"
ROWS = [
    (5, 5, None, False),
    (5, 5.0, None, True),
    (5, 6, Kind.CHANGED, False),
    (True, 1, Kind.CHANGED, False),
    ("[1, 2]", "[1.0, 2]", None, True),
    ("[1, 2]", "(1, 2)", None, False),
    ("[1, 2]", "[1.0, 3]", Kind.CHANGED, False),
    ("[1, 2]", "[1, 2, 2]", Kind.CHANGED, False),
    (5, "[5, 5]", Kind.CHANGED, False),
    ("[5, 5]", 5, Kind.CHANGED, False),
    ("[]", "[1]", Kind.CHANGED, False),
    ("['a', 2]", "['b', 2]", Kind.CHANGED, False),
    ("[1, a]", "[1, 1.0]", Kind.CHANGED, False),
    (HUGE, HUGE.replace("1]", "2]"), Kind.CHANGED, False),
]


@pytest.mark.parametrize(("left", "right", "kind", "kept_otherwise"), ROWS)
def test_plain_values_are_one_where_only_their_format_is_another(
    left: Any, right: Any, kind: Kind | None, kept_otherwise: bool
) -> None:
    for sides in ((left, right), (right, left)):
        outcome = Outcome()
        compare_plain([Pair("extra", None, "x", *map(number, sides), "extra")], [outcome], [0], DiffOptions())
        assert (outcome.kind, outcome.kept_otherwise) == (kind, kept_otherwise)

"""Names for the parameters of an optimizer that has none, taken from the other side's by position."""

import pytest

from ckptcheck.comparison.optimizer_names import Names, names_for
from ckptcheck.state.checkpoint import NameSource, Naming
from tests.comparison.held import optimizer

NAMED = Naming(NameSource.PARAM_NAMES, certain=True, reason="")
BARE = Naming(NameSource.NONE, certain=False, reason="")


@pytest.mark.parametrize(("left", "right", "names", "paired_by"), [
    (["a", "b"], ["#0", "#1"], {"#0": "a", "#1": "b"}, "position"),
    ([None, "b"], ["#0", "#1"], {"#1": "b"}, "position"),
    (["a", "b"], ["#0", None], {"#0": "a"}, "position"), ([None, "b"], ["#0", None], {}, "none"),
    (["a"], ["#0", "#1"], {}, "none"),
])  # fmt: skip
def test_only_what_both_sides_call_something_is_paired(left, right, names, paired_by):
    sides = optimizer([left]), optimizer([right])
    assert names_for(sides, (NAMED, BARE), {}) == Names(right=names, paired_by=paired_by)


def test_two_sides_without_names_go_by_position_also_where_nothing_is_called_anything():
    sides = optimizer([[None]]), optimizer([[None]])
    assert names_for(sides, (BARE, BARE), {}) == Names(paired_by="position")

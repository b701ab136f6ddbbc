"""Nested values from paths."""

import pytest

from ckptcheck.readers.dcp.nesting import ClashError, nested

CASES = {
    "keys": ([(("a", "b"), 1), (("a", "c"), 2), (("d",), 3)], {"a": {"b": 1, "c": 2}, "d": 3}),
    "a key with dots is one key": ([(("a.b", "c"), 1), (("a", "b.c"), 2)], {"a.b": {"c": 1}, "a": {"b.c": 2}}),
    "positions of a list": ([(("a", 0), 1), (("a", 1, "b"), 2)], {"a": [1, {"b": 2}]}),
    "positions in any order": ([(("a", 1), "y"), (("a", 0), "x")], {"a": ["x", "y"]}),
    "a position whose content was empty": ([(("a", 0), 1), (("a", 2), 3)], {"a": [1, None, 3]}),
    "digits as text are keys": ([(("a", "0"), 1)], {"a": {"0": 1}}),
    "ints beside strings are keys": ([(("a", 0), 1), (("a", "b"), 2)], {"a": {"0": 1, "b": 2}}),
    "a position far off is a key": ([(("a", 10**9), 1)], {"a": {"1000000000": 1}}),
    "a position before the first is a key": ([(("a", -1), 1)], {"a": {"-1": 1}}),
    "nothing": ([], {}),
}


@pytest.mark.parametrize(("leaves", "wanted"), CASES.values(), ids=CASES.keys())
def test_leaves_come_to_stand_at_their_paths(leaves, wanted):
    assert nested(leaves) == wanted


CLASHES = {
    "a path twice": [(("a",), 1), (("a",), 1)],
    "through a leaf": [(("a",), 1), (("a", "b"), 2)],
    "over a container": [(("a", "b"), 2), (("a",), 1)],
    "through a leaf that is a dict": [(("a",), {}), (("a", "b"), 2)],
}


@pytest.mark.parametrize("leaves", CLASHES.values(), ids=CLASHES.keys())
def test_paths_that_exclude_each_other_are_refused(leaves):
    with pytest.raises(ClashError):
        nested(leaves)

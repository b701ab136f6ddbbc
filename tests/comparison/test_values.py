"""Plain values: what deepdiff takes for equal or for changed, set right; what nests too deep, said."""

import json
import math
import struct
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.comparison import values
from ckptcheck.comparison.values import ValueDifference, diff_values
from ckptcheck.state.tree import MAX_DEPTH, MAX_SPLIT, flatten

OTHER_NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))[0]


def nested(depth, leaf):
    for _ in range(depth):
        leaf = {"k": leaf}
    return leaf


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [
        ({"a": 1}, {"a": 2}, [("a", "changed", "1", "2")]),
        ({"a": -0.0}, {"a": 0.0}, [("a", "changed", "-0.0", "0.0")]),
        ({"a": math.nan}, {"a": OTHER_NAN}, [("a", "changed", "nan:7ff8000000000000", "nan:7ff8000000000001")]),
        ({"a": 1e16}, {"a": 1e16 + 2}, [("a", "changed", "1e+16", "1.0000000000000002e+16")]),
        ({"a": 1}, {"a": 1.0}, [("a", "type", "1", "1.0")]),
        ({"a": 1}, {"a": True}, [("a", "type", "1", "True")]),
        ({"a": 0.0}, {"a": False}, [("a", "type", "0.0", "False")]),
        ({"a": "1"}, {"a": 1}, [("a", "type", "'1'", "1")]),
        ({"a": None}, {"a": "None"}, [("a", "type", "None", "'None'")]),
        ({"a": b"x"}, {"a": "x"}, [("a", "type", "bytes:78", "'x'")]),
        ({"a": (1, 2)}, {"a": [1, 2]}, [("a", "type", "tuple of 2", "list of 2")]),
        ({"a": ()}, {"a": []}, [("a", "type", "tuple of 0", "list of 0")]),
        ({"a": {}}, {"a": []}, [("a", "type", "mapping of 0", "list of 0")]),
        ({"a": {"x": 1}}, {"a": None}, [("a", "type", "mapping of 1", "None")]),
        ({1: "x"}, {"1": "x"}, [("1", "added", None, "'x'"), ("[1]", "removed", "'x'", None)]),
        ({1: "x"}, {True: "x"}, [("[1]", "removed", "'x'", None), ("[True]", "added", None, "'x'")]),
        ({"a": 1}, {"a": 1, "b": {"c": 2}}, [("b", "added", None, "mapping of 1")]),
        ([1, 2, 3], [2, 3],
         [("[0]", "changed", "1", "2"), ("[1]", "changed", "2", "3"), ("[2]", "removed", "3", None)]),
        ({"a": [{"lr": 1.0}, {"lr": 2.0}]}, {"a": [{"lr": 1.0}, {"lr": 3.0}]}, [("a[1].lr", "changed", "2.0", "3.0")]),
        ({"a": {3: {"b": (0, 1)}}}, {"a": {3: {"b": (0, 2)}}}, [("a[3].b[1]", "changed", "1", "2")]),
        ({"__a": 1}, {"__a": 2}, [("__a", "changed", "1", "2")]),
        ({"it's": 1, 'a"b': 1, "x[0]": 1}, {"it's": 1, 'a"b': 1, "x[0]": 2}, [("x[0]", "changed", "1", "2")]),
        ({"it's": 1, 'a"b': 1}, {"it's": 2, 'a"b': 2}, [('a"b', "changed", "1", "2"), ("it's", "changed", "1", "2")]),
        ({(1, 2): 0}, {(1, 2): 1}, [("[(1, 2)]", "changed", "0", "1")]),
        ("a\nb", "a\nc", [("", "changed", "'a\\nb'", "'a\\nc'")]),
        (3, 4, [("", "changed", "3", "4")]),
        ({1, 2}, {2, 3}, [("", "changed", "set{1, 2}", "set{2, 3}")]),
        ([0] * MAX_SPLIT, [0] * (MAX_SPLIT + 1),
         [("", "changed", f"list of {MAX_SPLIT}", repr([0] * (MAX_SPLIT + 1)))]),
        (nested(MAX_DEPTH, 1), nested(MAX_DEPTH, 2), [(".".join("k" * MAX_DEPTH), "changed", "1", "2")]),
    ],
)  # fmt: skip
def test_a_difference_is_named_with_place_kind_and_both_sides(left, right, found):
    assert diff_values(left, right) == tuple(ValueDifference(*one) for one in found)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": math.nan}, {"a": math.nan}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, OrderedDict(a=1)),
        ({1, 2, 3}, {3, 2, 1}),
        (nested(MAX_DEPTH, 1), nested(MAX_DEPTH, 1)),
        ({}, {}),
        (np.arange(3), np.arange(3)),
    ],
)
def test_what_is_the_same_gives_nothing(left, right):
    assert diff_values(left, right) == ()


def test_numpy_values_count_with_their_dtype_and_bits():
    (found,) = diff_values({"a": np.float32(0.0), "b": np.arange(3)}, {"a": np.float32(-0.0), "b": np.arange(3)})
    assert (found.path, found.kind) == ("a", "changed")
    assert diff_values(np.zeros(2, np.float32), np.zeros(1, np.float64)) != ()


def test_few_keys_in_common_are_still_told_key_by_key():
    found = diff_values({"a": 1, **dict.fromkeys("bcdefgh", 0)}, {"a": 2, **dict.fromkeys("stuvwxyz", 0)})
    assert [one.path for one in found] == sorted("abcdefghstuvwxyz")


def test_a_long_order_is_one_value_with_its_text_cut():
    left, right = list(range(60_000)), list(range(60_000))
    right[59_999] = 0
    (found,) = diff_values({"order": left}, {"order": right})
    assert (found.path, found.kind, len(found.left)) == ("order", "changed", values.MAX_TEXT)


def test_what_nests_too_deep_or_holds_itself_is_never_taken_for_equal():
    (found,) = diff_values(nested(MAX_DEPTH + 1, 1), nested(MAX_DEPTH + 1, 1))
    assert found.kind == "changed"
    assert found.left == found.right == "not compared: nested too deep, or too large"
    one, other = [], []
    one.append(one)
    other.append(other)
    assert "not compared" in diff_values(one, other)[0].left


def test_a_list_that_unfolds_without_end_is_bounded(monkeypatch):
    monkeypatch.setattr(values, "MAX_VALUES", 1000)
    left = [1]
    for _ in range(MAX_DEPTH - 2):
        left = [left, left]
    found = diff_values(left, left)
    assert 1 <= len(found) <= 1000
    assert all("not compared" in one.left for one in found)


def test_what_was_not_compared_is_changed_whatever_stands_opposite(monkeypatch):
    monkeypatch.setattr(values, "MAX_VALUES", 5)
    (found,) = diff_values(["a"] * 10, ["a"])
    assert (found.kind, found.right) == ("changed", "list of 1")


def test_keys_that_look_alike_do_not_hide_each_other():
    one, other = object(), object()
    (found,) = diff_values({one: 1, other: 2}, {one: 3, other: 2})
    assert (found.kind, found.left, found.right) == ("changed", "1", "3")


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, -0.0, 1.0, math.nan, 1e300])
    | st.text("a.'", max_size=2)
)
TREES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "b", "__c", 0, 1, True, None]), inner, max_size=3)
    ),
    max_leaves=12,
)


def leaves(tree):
    """Paths with exact leaves: the type and, of a float, the bits."""
    return [(path, type(one), struct.pack(">d", one) if isinstance(one, float) else one) for path, one in flatten(tree)]


def same(left, right):
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        keys = {(type(k), k) for k in left}
        return keys == {(type(k), k) for k in right} and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return struct.pack(">d", left) == struct.pack(">d", right) if isinstance(left, float) else left == right


@settings(max_examples=300, deadline=None)
@given(TREES, TREES)
def test_nothing_is_reported_exactly_where_types_keys_and_bits_are_the_same(left, right):
    assert (diff_values(left, right) == ()) == same(left, right)
    assert diff_values(left, left) == ()


MIRRORED = {"added": "removed", "removed": "added", "changed": "changed", "type": "type"}


@settings(max_examples=200, deadline=None)
@given(TREES, TREES)
def test_the_sides_exchanged_exchange_the_report(left, right):
    mirrored = [(one.path, MIRRORED[one.kind], one.right, one.left) for one in diff_values(left, right)]
    straight = [(one.path, one.kind, one.left, one.right) for one in diff_values(right, left)]
    assert sorted(map(repr, mirrored)) == sorted(map(repr, straight))


def test_equal_values_and_the_import_cost_no_deepdiff():
    code = (
        "import sys, json; from ckptcheck.comparison.values import diff_values as d; d({'a': 1}, {'a': 1});"
        "before = 'deepdiff' in sys.modules; d({'a': 1}, {'a': 2});"
        "print(json.dumps([before, 'deepdiff' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, True]

"""Trees as leaves with paths, and the canonical text of plain values."""

import enum
import math
import struct
import subprocess
import sys
from collections import OrderedDict, deque, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.state.tree import MAX_DEPTH, MAX_SPLIT, Beside, canonical, flatten, is_long_plain, is_plain, join


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1
    ALSO_LOW = 2


class Whole(int):
    def __repr__(self) -> str:
        return "1"


class Other(int): ...


Pair = namedtuple("Pair", "first second")

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(width=64),
    st.sampled_from([0.0, -0.0, 1.0, 1, True, "1", b"1", 0, False, "", "None", "nan", "(1)", "[]", "{}", "set{}"]),
    st.integers(0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF).map(
        lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]
    ),
    st.text(max_size=4),
    st.binary(max_size=3),
    st.complex_numbers(),
    st.sampled_from([np.float64(1), np.float32(1), np.int64(1), np.bool_(True), np.str_("1"), np.bytes_(b"1")]),
    st.sampled_from([*Colour, *Level, Whole(1), Other(1), bytearray(b"1"), range(3), range(0, 3, 2)]),
)
KEYS = st.one_of(st.text(max_size=2), st.integers(-2, 2), st.booleans(), st.tuples(st.integers(0, 2)))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(deque),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(st.integers(0, 4), max_size=3),
    ),
    max_leaves=6,
)


def bits(value: Any) -> Any:
    """Types and bits as a nested tuple, by another way than a text."""
    kind = type(value)
    if isinstance(value, dict):
        return dict, frozenset((bits(key), bits(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return set, frozenset(bits(item) for item in value)
    if kind in (list, tuple, deque):
        return kind, *map(bits, value)
    if isinstance(value, np.generic):
        return np.dtype, value.dtype.str, value.tobytes()
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind is complex:
        return kind, struct.pack("<dd", value.real, value.imag)
    return kind, bytes(value) if kind is bytearray else value


@settings(max_examples=250, deadline=None)
@given(left=VALUES, right=VALUES)
def test_canonical_texts_are_equal_exactly_where_types_and_bits_are(left, right):
    assert (canonical(left) == canonical(right)) == (bits(left) == bits(right))


LEAVES = [
    0, 1, True, False, 1.0, 0.0, -0.0, math.inf, -math.inf, math.nan, None, "", "None", b"", 1j, -1j, Colour.RED,
    Colour.BLUE, Level.LOW, Level.ALSO_LOW, Whole(1), Other(1), np.float64(0), np.float64(math.nan), np.float32(0),
    np.array(0.0, np.float32), np.array([0.0], np.float32), np.array([[0.0]], np.float32), np.complex128(1j),
    np.bytes_(b""), np.str_(""), bytearray(), [], (), {}, set(), deque(), deque(maxlen=3), [[]], [()], ([],), range(2),
    torch.float32, torch.float16, torch.device("cpu"), torch.device("meta"), {1: 2}, {"1": 2}, {1: "2"}, [1, 2], [12],
    ["1, 2"], (1, 2), {1, 2},
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(LEAVES)), ids=lambda place: f"{type(LEAVES[place]).__name__}-{place}")
def test_each_of_these_values_has_a_text_of_its_own(place):
    same = [other for other, leaf in enumerate(LEAVES) if canonical(leaf) == canonical(LEAVES[place])]
    assert same == [place]
    assert is_plain(LEAVES[place])


def test_one_nan_is_not_another_and_equals_itself():
    nans = [
        struct.unpack(">d", struct.pack(">Q", bits))[0] for bits in (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 1)
    ]
    assert len({canonical(nan) for nan in nans}) == 3
    assert len({canonical(complex(1, nan)) for nan in nans}) == 3
    assert canonical([nans[0]]) == canonical([float("nan")])


def test_containers_of_one_kind_are_one_type_whatever_their_class():
    assert canonical(OrderedDict(a=1)) == canonical({"a": 1})
    assert canonical(frozenset({1})) == canonical({1})
    assert canonical(Pair(1, 2)) == canonical((1, 2)) == canonical(torch.Size([1, 2]))


def test_the_order_of_mappings_and_sets_does_not_count_and_that_of_lists_does():
    assert canonical({"a": 1, 2: [3]}) == canonical({2: [3], "a": 1})
    assert canonical([1, 2]) != canonical([2, 1])


@pytest.mark.parametrize("number", [10**3000, -(10**3000), 2**10_000, 1 << 20_000], ids=int.bit_length)
def test_integers_too_long_for_decimals_have_a_text(number):
    assert int(canonical(number), 0) == number
    assert canonical(number) != canonical(number + 1)


@pytest.mark.parametrize(
    "value", [object(), torch.ones(2), {"a": object()}, [torch.ones(1)], np.array([object()]), lambda: 1, slice(1)],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_what_is_known_by_its_class_only_is_not_plain(value):
    assert not is_plain(value)


def test_an_array_of_objects_is_not_told_by_their_addresses():
    assert canonical(np.array([object()])) == canonical(np.array([object()])) == "<numpy.ndarray>"


def test_a_text_is_the_same_in_every_process():
    code = (
        "from ckptcheck.state.tree import canonical, join\n"
        "print(canonical({'b', 'a', 'c'}), canonical({x: {1} for x in 'xyz'}), canonical(object()), join('', len))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


# Trees


def test_paths_join_string_keys_by_dots_and_put_the_rest_in_brackets():
    tree = {"a": {"b": [1, {"c": 2}]}, 3: {(1, "x"): 4}, None: 5}
    assert list(flatten(tree)) == [("a.b[0]", 1), ("a.b[1].c", 2), ("[3][(1, 'x')]", 4), ("[None]", 5)]
    assert list(flatten(tree["a"], "p")) == [("p.b[0]", 1), ("p.b[1].c", 2)]
    assert join("p", "k") == "p.k" and join("", "k") == "k" and join("p", 1) == "p[1]"


def test_leaves_come_in_the_trees_own_order_and_are_the_objects_themselves():
    tensor, other = torch.ones(2), object()
    leaves = list(flatten({"b": tensor, "a": [other]}))
    assert [path for path, _ in leaves] == ["b", "a[0]"]
    assert leaves[0][1] is tensor and leaves[1][1] is other


@pytest.mark.parametrize("empty", [{}, [], (), deque()], ids=lambda one: type(one).__name__)
def test_an_empty_container_is_a_leaf(empty):
    assert list(flatten({"a": empty})) == [("a", empty)]
    assert list(flatten(empty, "x")) == [("x", empty)]


def test_a_deque_is_walked():
    tensor = torch.ones(1)
    assert list(flatten(deque([tensor, 2]))) == [("[0]", tensor), ("[1]", 2)]


@pytest.mark.parametrize("kind", [list, tuple, deque])
def test_a_long_sequence_of_plain_values_is_one_leaf(kind):
    long, short = kind(range(MAX_SPLIT + 1)), kind(range(MAX_SPLIT))
    assert list(flatten({"a": long})) == [("a", long)]
    assert len(list(flatten({"a": short}))) == MAX_SPLIT
    assert is_long_plain(long) and not is_long_plain(short)


def test_a_long_sequence_with_a_tensor_in_it_is_walked():
    tree = [torch.ones(1), *range(MAX_SPLIT)]
    assert len(list(flatten(tree))) == MAX_SPLIT + 1


def nested(depth: int) -> list[Any]:
    tree: list[Any] = [1]
    for _ in range(depth):
        tree = [tree]
    return tree


def test_deep_nesting_is_one_leaf_whatever_its_depth():
    ((path, leaf),) = flatten(nested(5000))
    assert path == "[0]" * MAX_DEPTH
    assert canonical(leaf).count("[") == MAX_DEPTH
    assert not is_plain(leaf)
    assert is_plain(nested(MAX_DEPTH - 1)) and not is_plain(nested(MAX_DEPTH))
    assert list(flatten(nested(MAX_DEPTH - 1))) == [("[0]" * MAX_DEPTH, 1)]


def test_no_leaf_is_lost_where_a_key_spells_anothers_path():
    tree = {"a": {"b": 1}, "a.b": 2, "c": [3], "c[0]": 4}
    assert list(flatten(tree)) == [("a.b", 1), ("a.b (2)", 2), ("c[0]", 3), ("c[0] (2)", 4)]


def test_which_leaf_is_marked_does_not_depend_on_the_order_of_the_tree():
    one = {"a": {"b": 1}, "a.b": 2, "a.b (2)": 3}
    other = {"a.b (2)": 3, "a.b": 2, "a": {"b": 1}}
    assert dict(flatten(one)) == dict(flatten(other)) == {"a.b": 1, "a.b (3)": 2, "a.b (2)": 3}
    assert [path for path, _ in flatten(other)] == ["a.b (2)", "a.b (3)", "a.b"]


@pytest.mark.parametrize(
    ("tree", "paths"),
    [
        ({0: "a", 1: "b"}, ["p{0}", "p{1}"]),
        ({1: "b", 0: "a"}, ["p{1}", "p{0}"]),
        (["a", "b"], ["p[0]", "p[1]"]),
        ({1: "b"}, ["p[1]"]),
        ({0: "a", 2: "b"}, ["p[0]", "p[2]"]),
        ({0: "a", "1": "b"}, ["p[0]", "p.1"]),
        ({False: "a"}, ["p[False]"]),
        ({0: {0: [1]}}, ["p{0}{0}[0]"]),
    ],
)
def test_a_mapping_with_the_positions_of_a_list_for_keys_is_told_from_one(tree, paths):
    assert [path for path, _ in flatten(tree, "p")] == paths


def test_what_is_beside_a_value_stands_under_its_path():
    tree = {"w": Beside([1, Beside(2, {"deep": {"x": 3}})], {"s": 4, "<class>": "C"}), "v": 5}
    assert list(flatten(tree)) == [
        ("w[0]", 1), ("w[1]", 2), ("w[1].deep.x", 3), ("w.s", 4), ("w.<class>", "C"), ("v", 5)
    ]  # fmt: skip
    taken = {"w": Beside(1, {"s": 2}), "w.s": 3}
    assert dict(flatten(taken)) == {"w": 1, "w.s": 2, "w.s (2)": 3}


def test_a_greater_depth_is_walked_where_it_is_asked_for():
    assert list(flatten(nested(MAX_DEPTH), depth=MAX_DEPTH + 1)) == [("[0]" * (MAX_DEPTH + 1), 1)]


@settings(max_examples=60, deadline=None)
@given(tree=VALUES)
def test_no_path_comes_twice(tree):
    paths = [path for path, _ in flatten(tree)]
    assert len(paths) == len(set(paths))

"""A pickle is read by our own machine: values as Python has them, bounds, and nothing of the file ever run."""

import argparse
import collections
import datetime
import decimal
import gc
import pathlib
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.state.raw import Foreign, Named, StateDict
from tests.readers.torch_files import unpickled, value_of

PROTOCOLS = range(6)

PLAIN = [
    None, True, False, 0, -1, 255, 256, 65_536, -(2**31), 2**31, 2**63, -(2**200), 1.5, -0.0, float("inf"), 1 + 2j,
    "", "text", "\u00e9\u4e2d\U0001f600", "x" * 300, b"", b"\x00\xff" * 200, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4),
    [], [1, [2, [3]]], list(range(3_000)), {}, {"a": {"b": (1, None)}, 1: 2, (1, "x"): 3, 2.5: None}, set(), {1, "a"},
    frozenset({1, (2, 3)}), {i: str(i) for i in range(3_000)},
]  # fmt: skip


class Sample:
    def __init__(self) -> None:
        self.weight = [1, 2]
        self.parent: Any = None


class Listed(list[int]):
    pass


class Mapped(dict[str, int]):
    pass


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values_come_back_equal_and_of_the_same_type(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    found = unpickled(data)
    assert found.value == value
    assert type(found.value) is type(value)
    assert found.end == len(data)
    assert found.protocol == (protocol if protocol > 1 else 0)


_NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(value=_NESTED, protocol=st.sampled_from(PROTOCOLS))
def test_any_nested_value_comes_back(value: Any, protocol: int) -> None:
    assert value_of(pickle.dumps(value, protocol)) == value


OF_THE_LIBRARY = [
    (collections.OrderedDict([("b", 1), ("a", 2)]), {"b": 1, "a": 2}),
    (collections.defaultdict(list, {"a": [1]}), {"a": [1]}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (collections.deque([1, 2], 5), [1, 2]),
    (bytearray(b"\x00\xfe"), b"\x00\xfe"),
    (pathlib.PurePosixPath("/data/run/x.pt"), "/data/run/x.pt"),
    (pathlib.PurePosixPath("run/x.pt"), "run/x.pt"),
    (pathlib.PureWindowsPath(r"C:\data\x.pt"), r"C:\data\x.pt"),
    (len, Named("builtins.len")),
    (collections.OrderedDict, Named("collections.OrderedDict")),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("value", "expected"), OF_THE_LIBRARY, ids=lambda value: repr(value)[:30])
def test_containers_and_paths_of_the_library_become_plain_values(value: Any, expected: Any, protocol: int) -> None:
    assert value_of(pickle.dumps(value, protocol)) == expected


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_unknown_class_is_named_with_its_attributes_and_not_imported(protocol: int) -> None:
    found = value_of(pickle.dumps([Sample(), argparse.Namespace(lr=0.1)], protocol))
    assert [one.class_name for one in found] == [f"{__name__}.Sample", "argparse.Namespace"]
    assert [one.state for one in found] == [{"weight": [1, 2], "parent": None}, {"lr": 0.1}]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_dates_and_decimals_say_their_value(protocol: int) -> None:
    values = [datetime.datetime(2024, 2, 29, 13, 5, 7, 9), datetime.date(2024, 2, 29), decimal.Decimal("1.50")]
    found = value_of(pickle.dumps(values, protocol))
    assert [(one.class_name, one.arguments) for one in found] == [
        ("datetime.datetime", ("2024-02-29T13:05:07.000009",)),
        ("datetime.date", ("2024-02-29",)),
        ("decimal.Decimal", ("1.50",)),
    ]


@pytest.mark.parametrize("protocol", range(2, 6))
def test_subclasses_of_containers_keep_what_they_hold(protocol: int) -> None:
    listed, mapped = value_of(pickle.dumps([Listed([1, 2]), Mapped(a=1)], protocol))
    assert (listed.class_name, listed.items) == (f"{__name__}.Listed", [1, 2])
    assert (mapped.class_name, mapped.items) == (f"{__name__}.Mapped", {"a": 1})


def test_the_metadata_of_a_state_dict_stays_reachable() -> None:
    given_dict = collections.OrderedDict(weight=1)
    given_dict._metadata = {"": {"version": 1}, "bn": {"version": 2}}  # type: ignore[attr-defined]
    for protocol in range(2, 6):
        found = value_of(pickle.dumps(given_dict, protocol))
        assert isinstance(found, StateDict)
        assert dict(found) == {"weight": 1}
        assert found.metadata == {"": {"version": 1}, "bn": {"version": 2}}


def test_pickles_back_to_back_are_read_one_after_the_other() -> None:
    data = b"".join(pickle.dumps(value, 2) for value in (1, "two", [3]))
    found, position = [], 0
    while position < len(data):
        one = unpickled(data, start=position)
        found.append(one.value)
        position = one.end
    assert found == [1, "two", [3]]


def test_one_value_named_twice_is_one_value() -> None:
    shared = [1]
    found = value_of(pickle.dumps([shared, shared], 4))
    assert found[0] is found[1]


def test_a_cycle_is_broken_where_it_closes() -> None:
    parent, child = Sample(), Sample()
    parent.weight, child.parent = [child], parent  # type: ignore[list-item]
    found = value_of(pickle.dumps(parent, 2))
    inner = found.state["weight"][0]
    assert isinstance(inner, Foreign)
    assert inner.state["parent"].class_name == "<cycle>"
    looped: list[Any] = [1]
    looped.append((2, looped))
    through_tuple = value_of(pickle.dumps(looped, 2))
    assert through_tuple[1][1].class_name == "<cycle>"


def test_persistent_ids_are_what_the_reader_says_and_refused_without_one() -> None:
    data = b"\x80\x02(K\x01K\x02tQ."
    assert unpickled(data, persistent=lambda given: [given]).value == [(1, 2)]
    with pytest.raises(DamagedCheckpointError, match="outside of the pickle"):
        value_of(data)


def test_nested_classes_by_getattr_are_names_and_bound_methods_are_objects() -> None:
    nested = b"\x80\x02c__builtin__\ngetattr\nctorch.x\nOuter\nX\x05\x00\x00\x00Inner\x86R."
    assert value_of(nested) == Named("torch.x.Outer.Inner")
    bound = b"\x80\x02c__builtin__\ngetattr\ncmine\nModel\n)\x81X\x04\x00\x00\x00stop\x86R."
    found = value_of(bound)
    assert (found.class_name, found.arguments[1]) == ("builtins.getattr", "stop")


def _pickle(body: bytes) -> bytes:
    return b"\x80\x04" + body + b"."


UNSOUND = {
    "empty": (b"", "cut short"),
    "cut short": (pickle.dumps({"a": [1, 2, 3]})[:-6], "cut short|malformed|promises"),
    "no opcode": (_pickle(b"\xff"), "has no opcode but byte 0xff at byte 2"),
    "protocol of the future": (b"\x80\x63N.", "of protocol 99"),
    "memo without a value": (_pickle(b"h\x05"), "not remembered"),
    "empty stack": (_pickle(b""), "ends with"),
    "left over": (_pickle(b"NN"), "ends with values left over"),
    "mark left over": (_pickle(b"(N"), "ends with"),
    "text longer than the file": (_pickle(b"X\xff\xff\xff\x7fabc"), "promises 2147483647 bytes, 4 are left"),
    "negative long": (_pickle(b"\x8b\xff\xff\xff\xff"), "promises -1 bytes"),
    "no text": (_pickle(b"X\x02\x00\x00\x00\xff\xfe"), "malformed"),
    "list as key": (_pickle(b"}]Ns"), "has a list for a key"),
    "dict in a tuple as key": (_pickle(b"}}\x85Ns"), "has a dict for a key"),
    "key without a value": (_pickle(b"}(Nu"), "a key without a value"),
    "appends to a number": (_pickle(b"K\x01Na"), "appends to a int"),
    "items of a list": (_pickle(b"]NNs"), "sets items of a list"),
    "adds to a list": (_pickle(b"](N\x90"), "adds to a list"),
    "calls a number": (_pickle(b"K\x01)R"), "calls a int"),
    "calls without a tuple": (_pickle(b"cx\ny\nNR"), "with a NoneType"),
    "global of numbers": (_pickle(b"K\x01K\x02\x93"), "something else than two texts"),
    "a name without an end": (_pickle(b"c" + b"x" * 2_000), "longer than"),
    "text persistent id": (_pickle(b"Pabc\n"), "PERSID"),
    "extension": (_pickle(b"\x82\x01"), "EXT1"),
    "outside buffer": (_pickle(b"\x97"), "NEXT_BUFFER"),
    "a decimal that is none": (_pickle(b"Iabc\n"), "malformed"),
    "bytes beyond latin-1": (
        _pickle(b"c_codecs\nencode\nX\x03\x00\x00\x00\xe4\xb8\xad\x8c\x06latin1\x86R"),
        "beyond 255",
    ),
    "set of lists": (_pickle(b"c__builtin__\nset\n]]a\x85R"), "has a list for a key"),
    "dict of numbers": (_pickle(b"ccollections\nOrderedDict\nK\x01\x85R"), "makes a dict of a int"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "said"), UNSOUND.values(), ids=UNSOUND.keys())
def test_bytes_that_are_no_sound_pickle_are_refused_in_one_line(data: bytes, said: str) -> None:
    with pytest.raises(DamagedCheckpointError, match=said) as caught:
        value_of(data)
    assert str(caught.value).startswith("a pickle: ")
    assert "\n" not in str(caught.value)


def _tuples(depth: int) -> bytes:
    return b")" + b"\x85" * depth


def _doubled(levels: int) -> bytes:
    """A tuple of two of a tuple of two of ...: 2**levels values in a few bytes each."""
    step = b"".join(b"q" + bytes([level]) + b"h" + bytes([level]) + b"\x86" for level in range(levels))
    return b")" + step


def _hashed_to_nothing(place: int) -> bytes:
    return (place * (2**61 - 1)).to_bytes(10, "little")


BEYOND = {
    "nested too deep": (_pickle(b"]" * 200 + b"a" * 199), "nested deeper than"),
    "shared and nested too deep": (
        _pickle(b"]q\x00" + b"]" * 40 + b"a" * 40 + b"0](h\x00" + b"]" * 40 + b"h\x00" + b"a" * 40 + b"e"),
        "nested deeper than",
    ),
    "tuples nested too deep": (_pickle(_tuples(300_000)), "nested deeper than"),
    "a deep tuple as key": (_pickle(b"}" + _tuples(300_000) + b"Ns"), "key nested deeper"),
    "a doubled tuple": (_pickle(_doubled(40)), "unfolds to more than"),
    "a doubled tuple as key": (_pickle(b"}" + _doubled(31) + b"Ns"), "4000 keys that are tuples"),
    "a doubled tuple in a set": (_pickle(b"\x8f(" + _doubled(31) + b"\x90"), "4000 keys that are tuples"),
    "colliding numbers": (
        _pickle(b"}(" + b"".join(b"\x8a\x0a" + _hashed_to_nothing(i) + b"N" for i in range(9_000)) + b"u"),
        "copies or hashes more than",
    ),
    "containers never ended": (_pickle(b"(" * 20_000), "within each other"),
    "a number of many bytes": (_pickle(b"\x8b" + struct.pack("<i", 5_000) + b"\x01" * 5_000), "integer of 5000 bytes"),
    "one list copied for ever": (
        _pickle(b"c__builtin__\nlist\nq\x00(" + b"N" * 50_000 + b"tq\x01" + b"0h\x00h\x01\x85R" * 100),
        "copies or hashes more than",
    ),
    "one text encoded for ever": (
        _pickle(b"c_codecs\nencode\nq\x000" + b"X\x10\x27\x00\x00" + b"a" * 10_000 + b"\x8c\x06latin1\x86q\x010"
                + b"h\x00h\x01R" * 100),
        "copies more than twice its own",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "said"), BEYOND.values(), ids=BEYOND.keys())
def test_what_would_take_more_time_or_memory_than_its_bytes_deserve_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        value_of(data)


def test_builders_that_call_each_other_end() -> None:
    call = b"ccopyreg\n__newobj__\n"
    with pytest.raises(CheckpointError, match="functions within each other"):
        value_of(_pickle(call + b"(" + call * 30 + b"tR"))


def test_the_search_for_garbage_goes_on_after_a_pickle() -> None:
    assert gc.isenabled()
    value_of(pickle.dumps([1]))
    with pytest.raises(DamagedCheckpointError):
        value_of(b"\x80\x04")
    assert gc.isenabled()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_changed_bytes_end_in_a_value_or_in_our_own_error(data: st.DataObject) -> None:
    good = pickle.dumps({"a": [1, (2.5, "x")], "s": {1, 2}, "o": collections.OrderedDict(a=Sample())}, 2)
    place = data.draw(st.integers(0, len(good) - 1))
    changed = bytearray(good)
    changed[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    try:
        value_of(bytes(changed[: max(cut, place)]) if data.draw(st.booleans()) else bytes(changed))
    except CheckpointError as trouble:
        assert "\n" not in str(trouble)  # noqa: PT017 - either end is right

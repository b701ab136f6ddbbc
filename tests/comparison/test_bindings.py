"""Which state an optimizer holds for which parameter: one explanation for each deviation."""

import pytest

from ckptcheck.comparison.bindings import Binding, Slot, bindings
from ckptcheck.comparison.states import compare_states
from ckptcheck.state.digest import Digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry
from tests.comparison.written import content, entry, number, optimizer, state_of


def bind(left, right) -> Binding:
    (found,) = bindings(compare_states(state_of(left), state_of(right)))
    return found


def full(value: int, step: int = 3) -> dict:
    return {"m": entry(("m", value)), "v": entry(("v", value)), "step": entry(("step", step), 1)}


NOTHING = {"stale": (), "left_only": (), "right_only": (), "regrouped": {}, "permuted": {}, "missing": (),
           "none_loaded": False, "partial": {}, "reshaped": (), "counted": (), "valued": (),
           "as_built": ()}  # fmt: skip
MEMBERS = [["a", "b", "c"]]
STATE = {"a": full(1), "b": full(2), "c": full(3)}


def without(name: str, *keys: str) -> dict:
    if not keys:
        return {other: state for other, state in STATE.items() if other != name}
    return {**STATE, name: {key: value for key, value in STATE[name].items() if key not in keys}}


@pytest.mark.parametrize(
    ("members", "state", "expected"),
    [
        (MEMBERS, STATE, {}),
        ([["c", "a", "b"]], STATE, {}),
        (MEMBERS, {}, {"missing": ("a", "b", "c"), "none_loaded": True}),
        (MEMBERS, without("b"), {"missing": ("b",)}),
        (MEMBERS, {**STATE, "b": {}}, {"missing": ("b",)}),
        (MEMBERS, without("b", "v"), {"partial": {"b": ("v",)}}),
        (MEMBERS, without("b", "v", "step"), {"partial": {"b": ("v", "step")}}),
        (MEMBERS, {**STATE, "b": {**full(2), "v": number(None)}}, {"partial": {"b": ("v",)}}),
        (MEMBERS, {**STATE, "b": {**full(2), "v": entry(("v", 2), 4)}}, {"reshaped": (("b", "v"),)}),
        (MEMBERS, {**STATE, "b": {**full(2), "v": number(7)}}, {"reshaped": (("b", "v"),)}),
        (MEMBERS, {**STATE, "b": {**full(2), "v": entry(9)}}, {"valued": (("b", "v"),)}),
        (MEMBERS, {**STATE, "b": {**full(2), "v": entry(("v", 2), dtype="float16")}}, {"valued": (("b", "v"),)}),
        (MEMBERS, {**STATE, "b": {**full(2), "new": entry(9)}}, {"valued": (("b", "new"),)}),
        (MEMBERS, {"a": full(2), "b": full(1), "c": full(3)}, {"permuted": {"a": "b", "b": "a"}}),
        ([["c", "b", "a"]], {"a": full(3), "b": full(2), "c": full(1)}, {"permuted": {"a": "c", "c": "a"}}),
        (MEMBERS, {"a": full(1), "b": full(2), "c": full(2)}, {"permuted": {"c": "b"}}),
        ([["a", "b"]], without("c"), {"left_only": ("c",)}),
        ([["a", "b", "c", "d"]], STATE, {"right_only": ("d",)}),
        ([["a", "b", "d"]], {"a": full(1), "b": full(2), "d": full(3)},
         {"left_only": ("c",), "right_only": ("d",), "permuted": {"d": "c"}}),
        ([["a", None, "c"]], {"a": full(1), "c": full(3), "<x>": full(2)},
         {"stale": (Slot(0, 1, "b"),), "permuted": {"<x>": "b"}}),
        ([["a", None, "c"]], without("b"), {"stale": (Slot(0, 1, "b"),)}),
    ],
)  # fmt: skip
def test_each_deviation_has_one_explanation(members, state, expected):
    found = bind(optimizer(MEMBERS, STATE), optimizer(members, state))
    assert {name: getattr(found, name) for name in NOTHING} == {**NOTHING, **expected}


def test_members_that_change_group_are_told_with_both_groups():
    left = optimizer([["a", "b"], ["c", "d"]], {})
    assert bind(left, optimizer([["a", "d"], ["c", "b"]], {})).regrouped == {"d": (1, 0), "b": (0, 1)}
    assert bind(left, optimizer([["c", "d"], ["a", "b"]], {})).regrouped == {}


def test_a_counter_that_differs_in_value_is_told_apart_from_other_values():
    left, right = (optimizer([["a"]], {"a": {"step": number(value), "m": entry(1)}}) for value in (3, 0))
    found = bind(left, right)
    assert (found.counted, found.valued) == ((("a", "step"),), ())
    narrow = optimizer([["a"]], {"a": {"step": number(3.0), "m": entry(1)}})
    assert bind(left, narrow).valued == (("a", "step"),)


def test_counters_and_content_that_several_had_prove_no_permutation():
    zero = {"m": entry(0), "step": entry(3, 1)}
    left = optimizer([["a", "b"]], {"a": zero, "b": zero})
    right = optimizer([["a", "b"]], {"a": {**zero, "m": entry(7)}, "b": zero})
    assert bind(left, right).permuted == {}
    three = optimizer([["a", "b", "c"]], {"a": zero, "b": zero, "c": full(3)})
    assert bind(three, optimizer([["a", "b", "c"]], {"a": zero, "b": zero, "c": zero})).permuted == {}
    only_step = optimizer([["a", "b"]], {"a": {"step": entry(3, 1)}, "b": {"step": entry(4, 1)}})
    swapped = optimizer([["a", "b"]], {"a": {"step": entry(4, 1)}, "b": {"step": entry(3, 1)}})
    assert bind(only_step, swapped).permuted == {}


def test_state_that_only_the_right_has_is_not_missing():
    found = bind(optimizer([["a", "b"]], {"a": full(1)}), optimizer([["a", "b"]], {"a": full(1), "b": full(2)}))
    assert (found.missing, found.none_loaded, found.permuted) == ((), False, {})


def test_each_optimizer_that_both_have_gets_a_binding():
    one, none = optimizer([["a"]], {"a": full(1)}), optimizer([["a"]], {})
    found = bindings(compare_states(state_of(one, one), state_of(one, none)))
    assert [(each.optimizer, each.none_loaded) for each in found] == [(0, False), (1, True)]
    assert len(bindings(compare_states(state_of(one, one), state_of(one)))) == 1


def test_state_as_it_was_built_is_missing():
    built = optimizer(MEMBERS, {name: full(0, 0) for name in "abc"})
    for state, missing in (
        ({**STATE, "b": full(0, 0)}, ("b",)),
        ({name: full(0, 0) for name in "abc"}, ("a", "b", "c")),
        ({**STATE, "b": full(0, 3)}, ()),
    ):
        diff = compare_states(state_of(optimizer(MEMBERS, STATE)), state_of(optimizer(MEMBERS, state)))
        (found,) = bindings(diff, state_of(built))
        assert (found.missing, found.as_built, found.none_loaded) == (missing, missing, len(missing) == 3)


def test_state_that_was_saved_as_it_was_built_is_not_missing():
    built = optimizer(MEMBERS, {name: full(0, 0) for name in "abc"})
    (found,) = bindings(compare_states(state_of(built), state_of(built)), state_of(built))
    assert found.missing == ()


def test_a_number_in_place_of_a_scalar_tensor_has_no_other_shape():
    scalar = Entry(TensorSpec("float32", ()), Digest("xxh3_128", content(3)), value=3.0)
    for loaded, kind in ((number(3), "valued"), (number(4), "counted")):
        found = bind(optimizer([["a"]], {"a": {"step": scalar}}), optimizer([["a"]], {"a": {"step": loaded}}))
        assert (getattr(found, kind), found.reshaped) == ((("a", "step"),), ())


def test_state_under_a_key_that_is_no_parameter_binds_nothing():
    moved = {f"'{name}'": one for name, one in STATE.items()}
    found = bind(optimizer(MEMBERS, STATE), optimizer(MEMBERS, moved))
    assert (found.missing, found.none_loaded, found.permuted) == (("a", "b", "c"), True, {})

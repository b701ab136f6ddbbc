"""Two training states compared by name."""

import pytest

from ckptcheck.comparison.states import compare_states
from ckptcheck.state.training_state import Group, Optimizer, Parameter
from tests.comparison.written import entry, number, optimizer, state_of


def told(diff) -> list[tuple[str, str, str]]:
    return [(one.section, one.name, one.key) for one in diff.entries]


def test_equal_states_have_no_difference():
    one = state_of(optimizer([["a", "b"]], {"a": {"m": entry(1)}}, lr=0.1), rng={"torch": entry(1)})
    diff = compare_states(one, one)
    assert diff.entries == diff.untied == diff.tied == diff.frozen == diff.unfrozen == ()
    assert diff.groups[0].same_order


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        ({"parameters": {"a": 1}}, {"parameters": {"a": 2}}, ("param", "a", "")),
        ({"parameters": {"a": 1, "b": 1}}, {"parameters": {"a": 1}}, ("param", "b", "")),
        ({"buffers": {"mean": entry(1)}}, {"buffers": {"mean": entry(2)}}, ("buffer", "mean", "")),
        ({"buffers": {"mean": entry(1)}}, {}, ("buffer", "mean", "")),
        ({"rng": {"torch": entry(1)}}, {"rng": {"torch": entry(2)}}, ("rng", "torch", "")),
        *(
            ({"sections": {name: {"x": number(1)}}}, {"sections": {name: {"x": number(2)}}}, (name, "x", ""))
            for name in ("schedule", "scaler", "ema", "data", "extra")
        ),
        ({"sections": {"ema": {"x": number(1)}}}, {}, ("ema", "x", "")),
        ({}, {"sections": {"extra": {"x": number(1)}}}, ("extra", "x", "")),
        ({"sections": {"extra": {"x": number(1)}}}, {"sections": {"extra": {"x": number(1.0)}}}, ("extra", "x", "")),
    ],
)
def test_each_section_is_compared(left, right, place):
    for pair in ((left, right), (right, left)):
        diff = compare_states(*(state_of(**side) for side in pair))
        assert told(diff) == [place]
        assert [one.name for one in diff.of(place[0])] == [place[1]]
        assert diff.of("none") == ()


def test_a_generator_that_one_side_does_not_have_is_no_difference():
    assert compare_states(state_of(rng={"numpy": entry(1)}), state_of()).entries == ()


def test_state_is_compared_by_optimizer_name_and_key():
    left = optimizer([["a", "b"]], {"a": {"m": entry(1), "v": entry(2)}, "b": {"m": entry(3)}})
    right = optimizer([["a", "b"]], {"a": {"m": entry(1), "v": entry(9)}, "c": {"m": entry(4)}})
    diff = compare_states(state_of(left, left), state_of(left, right))
    assert told(diff) == [("state", "a", "v"), ("state", "b", "m"), ("state", "c", "m")]
    assert {one.optimizer for one in diff.entries} == {1}
    assert [one.changed for one in diff.entries] == [True, False, False]


def test_an_equal_digest_of_another_dtype_or_shape_is_a_difference():
    left = optimizer([["a"]], {"a": {"m": entry(1, 4)}})
    for other in (entry(1, 2, 2), entry(1, 4, dtype="float16")):
        assert told(compare_states(state_of(left), state_of(optimizer([["a"]], {"a": {"m": other}}))))


def grouped(*groups: tuple[list[str], float]) -> Optimizer:
    return Optimizer("SGD", tuple(Group(tuple(members), {"lr": number(rate)}) for members, rate in groups))


def test_hyperparameters_are_compared_between_groups_of_the_same_members():
    left = state_of(grouped((["a"], 0.1), (["b"], 0.2)))
    assert compare_states(left, state_of(grouped((["b"], 0.2), (["a"], 0.1)))).entries == ()
    diff = compare_states(left, state_of(grouped((["b"], 0.3), (["a"], 0.1))))
    assert [(one.key, one.group, one.left.value, one.right.value) for one in diff.entries] == [("lr", 1, 0.2, 0.3)]


def test_gradients_are_compared_where_a_side_has_one():
    with_one = {"a": Parameter("a", entry(1), presence="nonzero", grad=entry(5)), "b": 2}
    without = {"a": Parameter("a", entry(1), presence="none"), "b": 2}
    assert told(compare_states(state_of(parameters=with_one), state_of(parameters=without))) == [("grad", "a", "")]
    assert compare_states(state_of(parameters=without), state_of(parameters=without)).entries == ()


def test_what_is_trained_and_what_is_tied_is_told_by_side():
    left = {
        "a": Parameter("a", entry(1), requires_grad=False),
        "b": Parameter("b", entry(2), requires_grad=True),
        "c": Parameter("c", entry(3), requires_grad=None, aliases=("d",)),
        "unknown": Parameter("unknown", entry(5), requires_grad=None),
        "gone": Parameter("gone", entry(4), requires_grad=False),
    }
    right = {
        "a": Parameter("a", entry(1), requires_grad=True, aliases=("e",)),
        "b": Parameter("b", entry(2), requires_grad=False),
        "c": Parameter("c", entry(3), requires_grad=None),
        "unknown": Parameter("unknown", entry(5), requires_grad=True),
    }
    diff = compare_states(state_of(parameters=left), state_of(parameters=right))
    assert (diff.unfrozen, diff.frozen) == (("a",), ("b",))
    assert (diff.untied, diff.tied) == ((("c", "d"),), (("a", "e"),))


def test_an_optimizer_that_one_side_lacks_is_left_out_of_the_pairs():
    one = optimizer([["a"]], {"a": {"m": entry(1)}})
    for pair in ((state_of(one, one), state_of(one)), (state_of(one), state_of(one, one))):
        assert [place for place, *_ in compare_states(*pair).optimizers] == [0]

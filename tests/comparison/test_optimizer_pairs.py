"""Optimizers paired by name, by position, or not at all."""

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import Kind, Regrouped
from ckptcheck.comparison.optimizer_names import names_for
from ckptcheck.state.checkpoint import NameSource, Naming
from ckptcheck.state.training_state import Group, Optimizer
from tests.comparison.held import GROUPS, checkpoint, diff, entry, moments, nudged, optimizer, told, trained, weights


def test_two_parameters_without_state_are_removed_key_by_key():
    found = diff(trained(), trained({"out.weight": moments()["out.weight"]}))
    assert told(found) == [
        (f"optimizer/{name}/{key}", "removed")
        for name in ("fc.weight", "fc.bias")
        for key in ("step", "exp_avg", "exp_avg_sq")
    ]


KEYED = Naming(NameSource.KEYS, certain=True, reason="")
GUESSED = Naming(NameSource.MODEL_ORDER, certain=False, reason="the order fits")


def test_groups_in_another_order_are_a_note_where_a_side_is_keyed_by_name():
    values = [{"lr": 0.1}, {"lr": 0.2}]
    found = diff(trained(values=values), trained(groups=GROUPS[::-1], values=values[::-1], naming=KEYED))
    assert found.same_content
    assert found.notes == ("optimizer 0: its groups stand in another order; they are paired by their members",)


def test_members_in_another_order_within_a_group_are_a_note_where_a_side_is_keyed_by_name():
    found = diff(trained(naming=KEYED), trained(groups=[("fc.bias", "fc.weight"), ("out.weight",)]))
    assert found.same_content
    assert found.notes == ("optimizer 0: parameters stand in another order in its groups; paired by name",)


@pytest.mark.parametrize(("groups", "left", "right"), [
    (GROUPS[::-1], "group 0: fc.weight, fc.bias; group 1: out.weight",
     "group 0: out.weight; group 1: fc.weight, fc.bias"),
    ([("fc.bias", "fc.weight"), ("out.weight",)], "group 0: fc.weight, fc.bias", "group 0: fc.bias, fc.weight"),
])  # fmt: skip
def test_another_order_is_a_difference_where_both_sides_are_bound_by_position(groups, left, right):
    (row,) = diff(trained(), trained(groups=groups)).rows
    assert (row.section, row.parameter, row.key, row.kind, row.optimizer) == (
        "optimizer", None, "param_groups", Kind.MOVED, 0
    )  # fmt: skip
    assert (row.left.value, row.right.value) == (left, right)


def test_another_order_can_be_left_out():
    for options in ({"ignored": ("optimizer/param_groups",)}, {"only": ("model",)}):
        found = diff(trained(), trained(groups=GROUPS[::-1]), **options)
        assert found.same_content
        assert not any("nothing is called" in said for said in found.notes)


def test_of_a_long_order_what_differs_first_is_told():
    names = [f"w{place}" for place in range(100)]
    swapped = [*names[:50], names[51], names[50], *names[52:]]
    one, other = (checkpoint(weights(), optimizer([members])) for members in (names, swapped))
    (row,) = diff(one, other).rows
    assert row.left.value == "group 0: ..., w50, w51, w52, ..."
    assert row.right.value == "group 0: ..., w51, w50, w52, ..."


def three(order, naming=None, shapes=((4, 4), (4, 4), (4, 4)), groups=None):
    """Three weights whose states are told apart by their numbers, in this order of the optimizer."""
    state = {
        name: {"exp_avg": torch.full(shape, float(place + 1))}
        for place, (name, shape) in enumerate(zip(order, shapes, strict=True))
    }
    model = {name: torch.zeros(4, 4) for name in "abc"}
    return checkpoint(model, optimizer(groups or [order], state), naming=naming)


@pytest.mark.parametrize(("left", "right"), [(GUESSED, None), (None, GUESSED), (GUESSED, KEYED)])
def test_guessed_names_that_contradict_the_positions_make_no_difference(left, right):
    groups = [[("a",), ("b", "c")], [("c",), ("a", "b")]]
    one, other = three("abc", left, groups=groups[0]), three("cab", right, groups=groups[1])
    found = diff(one, other)
    assert found.same_content
    assert found.paired_by == ("position",)
    side = "left" if left is GUESSED else "right"
    assert f"optimizer 0 on the {side}: its parameter names are not certain: the order fits" in found.notes


def test_what_differs_at_a_position_goes_by_the_certain_name():
    for left, right in ((GUESSED, None), (None, GUESSED)):
        one, other = three("abc", left), three("cab", right)
        other.state.optimizers[0].state["c"]["exp_avg"] = entry(torch.arange(16.0).view(4, 4))
        assert told(diff(one, other)) == [(f"optimizer/{'c' if left is GUESSED else 'a'}/exp_avg", "changed")]


def test_guessed_names_of_a_side_keyed_by_name_in_another_order_are_kept():
    one, other = three("abc", GUESSED), three("cba", KEYED)
    other.state.optimizers[0].state.update(one.state.optimizers[0].state)
    found = diff(one, other)
    assert found.same_content
    assert found.paired_by == ("name",)


def test_guesses_whose_shapes_contradict_the_positions_are_kept_and_the_order_differs():
    one = three("abc", GUESSED, ((4, 4), (8,), (2, 2)))
    other = three("abc", GUESSED, ((4, 4), (8,), (2, 2)), groups=["cab"])
    assert told(diff(one, other)) == [("optimizer/param_groups", "moved")]


def test_names_that_are_not_certain_on_both_sides_are_told_once():
    assert diff(trained(naming=GUESSED), trained(naming=GUESSED)).notes == (
        "optimizer 0 on both sides: its parameter names are not certain: the order fits",
    )


def test_a_parameter_in_another_group_is_told_with_both_groups():
    found = diff(trained(), trained(groups=[("fc.weight",), ("out.weight", "fc.bias")]))
    assert found.regrouped == (Regrouped("fc.bias", 0, 0, 1),)
    (row,) = found.rows
    assert (row.section, row.parameter, row.key, row.kind, row.group) == (
        "optimizer", "fc.bias", "group", Kind.MOVED, 0
    )  # fmt: skip
    assert (row.left.value, row.right.value) == (0, 1)
    assert not found.same_content


def test_a_parameter_in_no_group_is_told():
    found = diff(trained(), trained(groups=[("fc.weight",), ("out.weight",)]))
    assert found.regrouped == (Regrouped("fc.bias", 0, 0, None),)


def test_a_hyperparameter_is_told_with_its_group():
    found = diff(
        trained(values=[{"lr": 0.1, "foreach": None}, {"lr": 0.2}]), trained(values=[{"lr": 0.1}, {"lr": 0.3}])
    )
    assert [(row.key, row.kind, row.group, row.optimizer) for row in found.rows] == [
        ("foreach", Kind.REMOVED, 0, 0),
        ("lr", Kind.CHANGED, 1, 0),
    ]
    assert [(row.left and row.left.value, row.right and row.right.value) for row in found.rows] == [
        ("None", None),
        (0.2, 0.3),
    ]


def numbered(state, order=("fc.weight", "fc.bias", "out.weight")):
    return {f"#{index}": state[name] for index, name in enumerate(order)}


def test_a_side_without_names_is_paired_by_position_over_all_groups():
    bare = checkpoint(weights(), optimizer([("#0", "#1"), ("#2",)], numbered(moments())), unnamed=True)
    for found in (diff(trained(), bare), diff(bare, trained())):
        assert found.same_content
        assert found.paired_by == ("position",)
        assert found.compared.state_tensors == 9


def test_what_differs_at_a_position_has_the_left_sides_name():
    state = moments()
    state["out.weight"]["exp_avg"] = nudged(state["out.weight"]["exp_avg"])
    bare = checkpoint(weights(), optimizer([("#0", "#1"), ("#2",)], numbered(state)), unnamed=True)
    assert told(diff(trained(), bare)) == [("optimizer/out.weight/exp_avg", "changed")]
    assert told(diff(bare, trained())) == [("optimizer/#2/exp_avg", "changed")]


def test_numbers_that_do_not_follow_the_groups_order_are_paired_by_position_all_the_same():
    order = ("fc.weight", "fc.bias", "out.weight")
    state = {name: moments()[order[index]] for name, index in (("#7", 0), ("#3", 1), ("#5", 2))}
    bare = checkpoint(weights(), optimizer([("#7", "#3"), ("#5",)], state), unnamed=True)
    assert diff(trained(), bare).same_content


def test_unequal_counts_without_names_are_not_compared_by_name_and_that_is_said():
    bare = checkpoint(weights(), optimizer([("#0", "#1")], {"#0": moments()["fc.weight"]}), unnamed=True)
    found = diff(trained(), bare)
    assert found.paired_by == ("none",)
    assert any("3 on the left and 2 on the right" in said for said in found.not_compared)
    # Content tells what the names cannot: the moments of fc.weight lie under "#0".
    assert {(row.parameter, row.other) for row in found.rows if row.kind is Kind.RENAMED} == {("fc.weight", "#0")}
    assert not found.regrouped


def test_an_optimizer_that_one_side_lacks_is_removed_as_a_whole():
    found = diff(trained(), checkpoint(weights()))
    assert len(found.rows) == 9 + 2
    assert {row.kind for row in found.rows} == {Kind.REMOVED}
    assert found.paired_by == ()


@pytest.mark.parametrize(
    ("left", "right", "same", "noted"),
    [
        (5, torch.tensor(5.0), True, True),
        (torch.tensor(5.0), 5, True, True),
        (5, torch.tensor([5], dtype=torch.bfloat16), True, True),
        (5, torch.tensor(6.0), False, False),
        (5, 5.0, True, True),
        (5, 5, True, False),
        (5, 6, False, False),
        (0.0, -0.0, False, False),
        (1, True, False, False),
        ("5", 5, False, False),
        (5, torch.tensor([5.0, 5.0]), False, False),
        (float("nan"), float("nan"), True, False),
    ],
)
def test_a_number_is_the_same_as_a_tensor_that_holds_it(left, right, same, noted):
    found = diff(trained({"fc.weight": {"step": left}}), trained({"fc.weight": {"step": right}}))
    assert (found.same_content, bool(found.notes)) == (same, noted)


@pytest.mark.parametrize("groups", [
    [("fc.weight", "fc.bias"), ("out.weight", "fc.bias")],
    [("fc.weight", "fc.bias", "fc.bias"), ("out.weight",)],
])  # fmt: skip
def test_a_parameter_in_a_second_group_or_twice_in_one_is_a_difference(groups):
    one, other = trained(), trained(groups=groups)
    for found in (diff(one, other), diff(other, one)):
        assert not found.same_content
        assert {row.parameter for row in found.regrouped} == {"fc.bias"}


def test_a_group_without_members_or_values_is_a_difference():
    one, other = trained(), trained(groups=[*GROUPS, ()])
    (row,) = (row for row in diff(one, other).rows if row.key == "param_groups")
    assert (row.key, row.kind, row.left.value, row.right.value) == (
        "param_groups", Kind.CHANGED, "2 groups of 2, 1 parameters", "3 groups of 2, 1, 0 parameters"
    )  # fmt: skip


NOBODY = Naming(NameSource.NONE, certain=False, reason="there are none")


@pytest.mark.parametrize(("namings", "members", "paired_by"), [
    ((NOBODY, NOBODY), ((None, None), (None, None)), "position"),
    ((NOBODY, KEYED), ((None, None), (None, None)), "none"),
    ((NOBODY, KEYED), (("#0", "#1"), ("fc.weight", "fc.bias")), "position"),
    ((NOBODY, NOBODY), ((None,), (None, None)), "position"),
    ((NOBODY, KEYED), (("#0",), ("fc.weight", "fc.bias")), "none"),
])  # fmt: skip
def test_optimizers_without_names_are_paired_by_position_where_positions_tell_anything(namings, members, paired_by):
    sides = tuple(Optimizer("SGD", (Group(one, {}),), {}) for one in members)
    found = names_for(sides, namings, {})
    assert found.paired_by == paired_by
    assert found.right == ({"fc.weight": "#0", "fc.bias": "#1"} if members[0] == ("#0", "#1") else {})

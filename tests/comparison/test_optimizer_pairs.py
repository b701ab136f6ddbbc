"""Optimizers paired by name, by position, or not at all."""

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import Kind, Regrouped
from tests.comparison.held import GROUPS, checkpoint, diff, moments, nudged, optimizer, told, trained, weights


def test_two_parameters_without_state_are_removed_key_by_key():
    found = diff(trained(), trained({"out.weight": moments()["out.weight"]}))
    assert told(found) == [
        (f"optimizer/{name}/{key}", "removed")
        for name in ("fc.weight", "fc.bias")
        for key in ("step", "exp_avg", "exp_avg_sq")
    ]


def test_groups_in_another_order_with_the_same_members_and_values_are_a_note():
    values = [{"lr": 0.1}, {"lr": 0.2}]
    found = diff(trained(values=values), trained(groups=GROUPS[::-1], values=values[::-1]))
    assert found.same_content
    assert found.notes == ("optimizer 0: its groups stand in another order; they are paired by their members",)


def test_members_in_another_order_within_a_group_are_a_note():
    found = diff(trained(), trained(groups=[("fc.bias", "fc.weight"), ("out.weight",)]))
    assert found.same_content
    assert found.notes == ("optimizer 0: parameters stand in another order in its groups; paired by name",)


def test_a_parameter_in_another_group_is_told_with_both_groups():
    found = diff(trained(), trained(groups=[("fc.weight",), ("out.weight", "fc.bias")]))
    assert found.regrouped == (Regrouped("fc.bias", 0, 0, 1),)
    assert not found.rows
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

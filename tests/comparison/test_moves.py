"""Content that lies elsewhere: moved, renamed, and what only looks like it."""

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import Kind
from tests.comparison.held import checkpoint, diff, moments, told, trained, weights


def test_state_swapped_between_two_parameters_is_moved():
    state = moments()
    state["fc.weight"], state["out.weight"] = state["out.weight"], state["fc.weight"]
    found = diff(trained(), trained(state))
    assert [(row.parameter, row.key, row.kind, row.other) for row in found.rows] == [
        ("fc.weight", "exp_avg", Kind.MOVED, "out.weight"),
        ("fc.weight", "exp_avg_sq", Kind.MOVED, "out.weight"),
        ("out.weight", "exp_avg", Kind.MOVED, "fc.weight"),
        ("out.weight", "exp_avg_sq", Kind.MOVED, "fc.weight"),
    ]
    assert all(row.difference is not None and row.difference.differing for row in found.rows)


def test_weights_of_three_layers_in_a_circle_are_moved():
    left = {f"l{i}": torch.full((4,), float(i)).cumsum(0) for i in range(1, 4)}
    right = {"l1": left["l3"], "l2": left["l1"], "l3": left["l2"]}
    found = diff(checkpoint(left), checkpoint(right))
    assert [(row.parameter, row.kind, row.other) for row in found.rows] == [
        ("l1", Kind.MOVED, "l2"),
        ("l2", Kind.MOVED, "l3"),
        ("l3", Kind.MOVED, "l1"),
    ]


def test_the_two_moments_of_one_parameter_exchanged_are_moved_with_the_whole_place():
    state = moments()
    one = state["fc.weight"]
    one["exp_avg"], one["exp_avg_sq"] = one["exp_avg_sq"], one["exp_avg"]
    found = diff(trained(), trained(state))
    assert [row.other for row in found.rows] == ["optimizer/fc.weight/exp_avg_sq", "optimizer/fc.weight/exp_avg"]


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_constant_tensors_are_never_moved(fill):
    constant, other = torch.full((2000, 400), fill), torch.arange(800_000.0).view(2000, 400)
    found = diff(checkpoint({"a": constant, "b": other}), checkpoint({"a": other + 1, "b": constant}))
    assert told(found) == [("model/a", "changed"), ("model/b", "changed")]


def test_content_that_is_there_twice_is_not_called_moved():
    one, new = torch.arange(8.0), torch.arange(8.0) + 0.5
    found = diff(checkpoint({"a": one, "b": one, "c": new + 7}), checkpoint({"a": new, "b": new + 1, "c": one}))
    assert {row.kind for row in found.rows} == {Kind.CHANGED}


def test_tensors_alike_in_the_middle_only_are_not_moved():
    one, other = torch.zeros(1000), torch.zeros(1000)
    one[0], other[999] = 1.0, 1.0
    found = diff(checkpoint({"a": one, "b": other}), checkpoint({"a": other * 2, "b": one * 2}))
    assert {row.kind for row in found.rows} == {Kind.CHANGED}


def test_a_renamed_layer_is_renamed_with_its_zero_bias_its_state_and_its_group():
    def rename(values):
        return {name.replace("fc.", "head."): value for name, value in values.items()}

    right = trained(rename(moments()), model=rename(weights()), groups=[("head.weight", "head.bias"), ("out.weight",)])
    found = diff(trained(), right)
    assert {row.kind for row in found.rows} == {Kind.RENAMED}
    assert [(row.section, row.parameter, row.other) for row in found.rows[:2]] == [
        ("model", "fc.weight", "head.weight"),
        ("model", "fc.bias", "head.bias"),
    ]
    assert len(found.rows) == 2 + 6
    assert all(row.right is not None for row in found.rows)
    assert found.regrouped == ()
    assert [(one.differing, one.added, one.removed) for one in found.summaries] == [(2, 0, 0), (6, 0, 0)]


def test_a_renamed_layer_in_another_group_is_regrouped_too():
    def rename(values):
        return {name.replace("fc.bias", "fc.offset"): value for name, value in values.items()}

    model = weights() | {"fc.bias": torch.arange(30.0)}
    left = trained(model=model)
    right = trained(rename(moments()), model=rename(model), groups=[("fc.weight",), ("out.weight", "fc.offset")])
    assert {one.parameter for one in diff(left, right).regrouped} == {"fc.bias", "fc.offset"}


def test_a_new_layer_of_the_same_shape_is_not_called_renamed():
    found = diff(checkpoint({"a": torch.arange(6.0)}), checkpoint({"b": torch.arange(6.0) + 1}))
    assert told(found) == [("model/a", "removed"), ("model/b", "added")]


def test_more_than_can_be_hashed_is_said(monkeypatch):
    monkeypatch.setattr("ckptcheck.comparison.moves.MAX_HASHED_BYTES", 100)
    state = moments()
    state["fc.weight"], state["out.weight"] = state["out.weight"], state["fc.weight"]
    found = diff(trained(), trained(state))
    assert {row.kind for row in found.rows} == {Kind.CHANGED}
    assert any("have to be hashed" in said for said in found.not_compared)


@pytest.mark.parametrize(("old", "new"), [("fc", "head"), ("a.fc", "b.fc"), ("fc", "deep.fc"), ("net.fc", "fc")])
def test_zeros_beside_a_renamed_weight_are_renamed_with_it(old, new):
    weight = torch.arange(12.0).view(4, 3)
    left, right = ({f"{name}.weight": weight, f"{name}.bias": torch.zeros(4)} for name in (old, new))
    other = {"out.weight": torch.arange(8.0) + 50}
    found = diff(checkpoint({**left, **other}), checkpoint({**right, **other}))
    assert {(row.parameter, row.kind, row.other) for row in found.rows} == {
        (f"{old}.{key}", Kind.RENAMED, f"{new}.{key}") for key in ("weight", "bias")
    }

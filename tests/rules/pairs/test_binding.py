"""CK3 over two checkpoints: groups, order, shapes."""

import copy

from ckptcheck.finding import Severity
from tests.check_cases.pairs import A, B, _left_out, _move, _other_order, _swapped_state
from tests.check_cases.training import decay_groups
from tests.check_cases.two import half_and_half, state_of, two
from tests.rules.pairs.given import said


def _exchange(left, right):
    _move(right, A, B)


def _turned(left, right):
    """The same groups the other way round."""
    right["optimizer"]["param_groups"].reverse()


def test_both_parameters_that_were_exchanged_are_named_with_both_groups(tmp_path):
    (found,), not_judged = said(two(_exchange, groups=half_and_half)(tmp_path), "CK301")
    assert found.evidence["groups"] == {A: [0, 1], B: [1, 0]}
    assert f"{A} (group 0 with weight_decay 0.1 in the left checkpoint, now 1 with weight_decay 0.0)" in found.message
    assert not_judged == []


def test_the_same_groups_in_another_order_are_told_once_as_torch_loads_them_by_place(tmp_path):
    sides = two(_turned, groups=half_and_half)(tmp_path)
    (found,), not_judged = said(sides, "CK301")
    assert (found.severity, found.evidence["groups"], not_judged) == (Severity.ERROR, [[0, 1], [1, 0]], [])
    assert "group 0 with weight_decay 0.1 of the left checkpoint is group 1 of the right one" in found.message
    assert said(sides, "CK302") == ([], [])


def test_without_names_groups_and_order_are_declared_ambiguous(tmp_path):
    def exchange(left, right):
        one, other = right["optimizer"]["param_groups"]
        one["params"][0], other["params"][1] = other["params"][1], one["params"][0]

    def bare(model):
        return [{**one, "params": [tensor for _, tensor in one["params"]]} for one in half_and_half(model)]

    sides = two(exchange, groups=bare)(tmp_path)
    for code in ("CK301", "CK302", "CK303", "CK405"):
        findings, not_judged = said(sides, code)
        assert findings == []
        assert "has no names that are certain" in not_judged[0].reason
    (found,), _ = said(sides, "CK308")
    assert found.severity is Severity.INFO
    assert "whether its 8 parameters changed group or order is not judged" in found.message


def test_sizes_alone_tell_that_somebody_moved(tmp_path):
    def grown(left, right):
        one, other = right["optimizer"]["param_groups"]
        other["params"].append(one["params"].pop())

    (found,), not_judged = said(two(grown, groups=decay_groups)(tmp_path), "CK301")
    assert (found.evidence["left_sizes"], found.evidence["right_sizes"]) == ([3, 5], [2, 6])
    assert len(not_judged) == 1


def test_exchanged_state_is_told_both_ways(tmp_path):
    (found,), _ = said(two(_swapped_state)(tmp_path), "CK302")
    assert found.evidence["permutation"] == {A: B, B: A}


def test_state_that_follows_its_weights_to_another_name_is_in_order(tmp_path):
    def renumbered(left, right):
        _swapped_state(left, right)
        right["model"] = copy.deepcopy(left["model"])
        for kind in ("weight", "bias"):
            names = f"layers.0.{kind}", f"layers.1.{kind}"
            right["model"][names[0]], right["model"][names[1]] = (left["model"][name] for name in reversed(names))

    assert said(two(renumbered)(tmp_path), "CK302") == ([], [])


def test_another_order_of_names_is_a_warning_where_state_follows(tmp_path):
    (found,), _ = said(two(_other_order)(tmp_path), "CK302")
    assert found.severity is Severity.WARNING
    assert "layers.1.weight, layers.0.bias, layers.0.weight" in found.message


def test_who_is_left_out_is_an_error_where_the_other_counters_go_on(tmp_path):
    (found,), _ = said(two(_left_out)(tmp_path), "CK303")
    assert (found.severity, found.where.parameter) == (Severity.ERROR, "head.bias")

    def anew(left, right):
        _left_out(left, right)
        for state in right["optimizer"]["state"].values():
            state["step"] -= 5

    (found,), _ = said(two(anew)(tmp_path), "CK303")
    assert found.severity is Severity.WARNING


def test_who_is_removed_on_purpose_is_not_missed(tmp_path):
    assert said(two(_left_out)(tmp_path), "CK303", freeze={"head.bias": "removed"}) == ([], [])


def _half_shape(side):
    state_of(side, A)["exp_avg"] = state_of(side, A)["exp_avg"][:3].clone()


def test_state_of_another_shape_names_both_shapes(tmp_path):
    (found,), _ = said(two(lambda left, right: _half_shape(right))(tmp_path), "CK304")
    assert (found.where.parameter, found.where.key) == (A, "exp_avg")
    assert (found.evidence["left"], found.evidence["right"]) == ("float32[6, 6]", "float32[3, 6]")


def test_state_that_was_resized_with_its_parameter_is_in_order(tmp_path):
    def resized(left, right):
        for key in ("exp_avg", "exp_avg_sq"):
            state_of(right, A)[key] = state_of(right, A)[key][:3].clone()
        right["model"][A] = right["model"][A][:3].clone()

    assert said(two(resized)(tmp_path), "CK304") == ([], [])

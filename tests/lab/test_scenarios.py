"""What each scenario shows of optimizers of torch, against what plain reasoning about torch expects."""

from functools import cache

import pytest
import torch

from ckptcheck.lab.probing import probed
from ckptcheck.lab.subject import torch_subject

NAMES = ["SGD", "AdamW", "RMSprop", "Adagrad", "Muon"]
COUNTS = {"AdamW", "RMSprop", "Adagrad"}
"""Those that count steps for each parameter."""


@cache
def _found(name):
    return probed(torch_subject(name, {}), "cpu")


def _rows(name, scenario, grad=None, implementation="for"):
    rows = [one for one in _found(name).rows if one.scenario == scenario and one.variant == ""]
    return [one for one in rows if one.implementation == implementation and grad in (None, one.grad)]


def _zero(name):
    (row,) = _rows(name, "history", "zero")
    return row.param_changed, set(row.state_changed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scenario", ["branch-inactive", "autocast"])
def test_a_branch_that_rests_is_left_alone_with_none_and_stepped_with_zeros(name, scenario):
    none, zero = _rows(name, scenario)
    assert (none.grad, none.facts["set_to_none"], none.moved) == ("none", True, False)
    assert (zero.grad, zero.facts["set_to_none"]) == ("zero", False)
    assert (zero.param_changed, set(zero.state_changed)) == _zero(name)


@pytest.mark.parametrize("name", NAMES)
def test_zeros_are_not_made_where_there_never_was_a_gradient(name):
    (row,) = _rows(name, "branch-never-active")
    assert (row.grad, row.history, row.moved, row.facts["gradient_made_of_nothing"]) == ("none", 0, False, False)
    assert set(row.after) - {"param"} == (set(row.before) - {"param"})


@pytest.mark.parametrize("name", NAMES)
def test_a_shared_parameter_is_stepped_once_where_it_is_used(name):
    both, one, nobody = _rows(name, "shared")
    assert [row.facts["used_by"] for row in (both, one, nobody)] == [["first", "second"], ["first"], []]
    assert [row.grad for row in (both, one, nobody)] == ["nonzero", "nonzero", "none"]
    assert [row.moved for row in (both, one, nobody)] == [True, True, False]
    if name in COUNTS:
        assert both.after["step"][0] - both.before["step"][0] == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", ["for", "fused"])
def test_a_scaler_leaves_a_step_out_for_an_overflow_whole(name, implementation):
    if implementation == "fused" and name in ("RMSprop", "Muon"):
        assert _rows(name, "scaler-skipped", implementation="fused") == []  # torch has none
        return
    rows = _rows(name, "scaler-skipped", implementation=implementation)
    assert [row.grad for row in rows] == ["none", "zero", "nonzero"]
    assert not any(row.moved for row in rows)
    assert all(row.facts["scale"] == [8.0, 4.0] for row in rows)
    none, zero = _rows(name, "scaler", implementation=implementation)
    assert not none.moved
    assert (zero.param_changed, set(zero.state_changed)) == _zero(name)
    assert zero.facts["scale"] == [8.0, 8.0]


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_gathered_before_a_resume_is_stepped_only_where_it_was_kept(name):
    lost, kept = _rows(name, "accumulation-over-a-resume")
    assert (lost.grad, lost.facts["gradient_kept"], lost.moved) == ("none", False, False)
    assert (kept.grad, kept.facts["gradient_kept"], kept.param_changed) == ("nonzero", True, True)


@pytest.mark.parametrize("name", NAMES)
def test_schedule_and_others_go_on_while_a_parameter_rests(name):
    (row,) = _rows(name, "schedule-goes-on")
    assert (row.grad, row.moved) == ("none", False)
    assert row.facts["lr"] == pytest.approx([0.1, 0.1 * 0.5**4])
    assert ("own_steps" in row.facts) is (name in COUNTS)
    if name in COUNTS:
        assert row.facts["own_steps"] == [5.0, 5.0]
        assert row.facts["other_steps"] == [5.0, 9.0]


def test_zeros_carry_adam_on_and_leave_plain_sgd_where_it_is():
    (row,) = _rows("AdamW", "drift")
    ways = list(row.facts["drift_in_lr"].values())
    assert [*row.facts["drift_in_lr"]] == ["1", "5", "20", "100"]
    assert 0 < ways[0] < ways[1] < ways[2] < ways[3]
    assert ways[0] <= 1.01 + 0.01 * 4  # one step of Adam goes a learning rate at most, its decay comes on top
    (row,) = _rows("SGD", "drift")
    assert set(row.facts["drift_in_lr"].values()) == {0.0}


def test_zeros_carry_momentum_on_by_a_geometric_series():
    def made(params):
        return torch.optim.SGD(params, lr=0.5, momentum=0.5)

    from ckptcheck.lab.subject import Subject

    rows = [one for one in probed(Subject("half", made), "cpu").rows if one.scenario == "drift"]
    ways = rows[0].facts["drift_in_lr"]
    momentum = max(abs(one) for one in rows[0].before["momentum_buffer"])
    for steps, way in ways.items():
        # 1/2 + 1/4 + ... of the momentum that was there
        assert way == pytest.approx(momentum * (1 - 0.5 ** int(steps)), rel=1e-5)

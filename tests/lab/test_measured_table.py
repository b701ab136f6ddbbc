"""The lab gives, cell by cell, what was measured before there was one."""

from functools import cache

import pytest

from ckptcheck.lab.probing import probed
from ckptcheck.lab.subject import torch_classes, torch_subject
from tests.lab import measured


@cache
def _found(name):
    return probed(torch_subject(name, {}), "cpu")


def _row(name, variant, scenario, grad, implementation="for"):
    (row,) = [
        one for one in _found(name).rows
        if (one.variant, one.scenario, one.grad, one.implementation) == (variant, scenario, grad, implementation)
    ]  # fmt: skip
    return row


@pytest.mark.parametrize("case", measured.MOVED, ids=lambda case: " ".join(filter(None, case)))
def test_none_and_zero_move_what_was_measured(case):
    value, state, advanced, value_at_zero, state_at_zero = measured.MOVED[case]
    none, zero = (_row(*case, "history", grad) for grad in ("none", "zero"))
    assert (none.param_changed, none.state_changed, none.step_advanced in (None, False)) == (False, (), True)
    assert not none.entered_step
    assert zero.entered_step
    assert (zero.param_changed, ",".join(zero.state_changed), zero.step_advanced) == (value, state, advanced)
    at_zero = _row(*case, "lr-zero", "zero")
    assert (at_zero.param_changed, ",".join(at_zero.state_changed)) == (value_at_zero, state_at_zero)
    assert not _row(*case, "lr-zero", "none").moved


@pytest.mark.parametrize("grad", ["none", "zero"])
def test_lbfgs_moves_for_none_as_for_zeros(grad):
    row = _row("LBFGS", "", "history", grad)
    assert (row.param_changed, ",".join(row.state_changed)) == (True, measured.OF_LBFGS)
    at_zero = _row("LBFGS", "", "lr-zero", grad)
    assert not at_zero.param_changed
    assert {*at_zero.state_changed} == {*measured.OF_LBFGS.split(","), "t"}


@pytest.mark.parametrize("name", torch_classes())
def test_every_optimizer_of_torch_was_measured(name):
    assert name == "LBFGS" or any(name == one for one, _ in measured.MOVED)


@pytest.mark.parametrize("name", sorted({one for one, _ in measured.MOVED} - {"SparseAdam", "Muon"}))
def test_without_history_none_makes_no_state_and_zeros_do(name):
    none, zero = (_row(name, "", "no-history", grad) for grad in ("none", "zero"))
    assert not none.moved
    assert bool(zero.state_changed) == (name != "SGD")
    assert zero.param_changed == (name in ("AdamW", "ASGD"))


@pytest.mark.parametrize("name", sorted({one for one, _ in measured.MOVED}))
def test_implementations_agree_as_was_measured(name):
    found = [one for one in _found(name).implementations if one.variant in ("", "decay", "momentum")]
    foreach = [one for one in found if one.implementation == "foreach"]
    if name in measured.BITWISE_FOREACH:
        assert foreach
        assert all(one.bitwise and one.max_ulp == 0 and one.max_abs == 0 for one in foreach)
    elif name in measured.NOT_BITWISE_FOREACH:
        assert any(not one.bitwise for one in foreach)
    else:
        assert not foreach
    fused = [one for one in found if one.implementation == "fused"]
    assert bool(fused) == (name in measured.FUSED)
    for one in (*foreach, *fused):
        assert one.raised == ""
        assert one.same_contract
        assert one.max_abs <= 1.2e-6
    assert all(one.raised for one in found if one.implementation == "capturable")


@pytest.mark.parametrize("name", measured.FROZEN)
def test_frozen_parameters_move_as_was_measured(name):
    stale, stale_state, zeroed, zeroed_state, value, state = measured.FROZEN[name]
    rows = {one.scenario: one for one in _found(name).rows if one.implementation == "for"}
    assert not rows["frozen-none"].moved
    for scenario, moved in (
        ("stale", (stale, stale_state)),
        ("zeroed", (zeroed, zeroed_state)),
        ("lr-zero", (value, state)),
    ):
        row = rows[f"frozen-{scenario}"]
        assert (row.param_changed, bool(row.state_changed)) == moved, scenario
    removed = rows["frozen-removed"]
    assert not removed.moved
    assert removed.facts["state_dict"] == ("works" if name == "SGD" else "raises KeyError")
    assert rows["frozen-batchnorm-train"].facts["buffers_changed"] is True
    assert rows["frozen-batchnorm-eval"].facts["buffers_changed"] is False
    assert not rows["frozen-batchnorm-train"].moved
    average = rows["frozen-average"]
    assert (average.param_changed, average.state_changed) == (True, ())


@pytest.mark.parametrize("name", torch_classes())
def test_no_case_of_torch_raises_and_a_reload_goes_on_exactly(name):
    found = _found(name)
    assert [one.raised for one in found.rows if one.raised] == []
    assert found.keeping
    assert all(one.exact for one in found.keeping)

"""CK5 over two checkpoints."""

import copy

import pytest
import torch

from tests.check_cases.two import state_of, two
from tests.rules.pairs.given import said

A = "layers.0.weight"


def _steps(left: int | None, right: int | None, shift: float = 0.0):
    """Recorded steps, and counters of the right that are off."""

    def change(one, other):
        for side, step in ((one, left), (other, right)):
            side.pop("step")
            side.update({"step": step} if step is not None else {})
        for state in other["optimizer"]["state"].values():
            state["step"] += shift

    return change


@pytest.mark.parametrize(("change", "off_by"), [
    (_steps(3, 6), None), (_steps(None, None), None), (_steps(4, 7), None), (_steps(3, 7), None),
    (_steps(30, 60), None), (_steps(1, 2), None), (_steps(3, 5), None), (_steps(3, 12, 2), None),
    (_steps(3, 6, -5), -2), (_steps(None, 6, -5), None), (_steps(3, 9), -3), (_steps(3, 6, 4), 4), (_steps(3, 1), 5),
    (_steps(3, 2), 4), (_steps(3, 4), 2),
])  # fmt: skip
def test_counters_are_off_only_where_nothing_else_explains_them(tmp_path, change, off_by):
    findings, _ = said(two(change)(tmp_path), "CK505")
    assert [one.evidence["off_by"] for one in findings] == ([off_by] if off_by is not None else [])
    assert all(f"off by {off_by}" in one.message for one in findings)


def test_one_counter_that_went_back_is_named(tmp_path):
    def back(left, right):
        state_of(right, A)["step"] -= 5

    (found,), _ = said(two(back)(tmp_path), "CK505")
    assert (found.where.parameter, found.evidence["parameters"]) == (A, [A])
    assert "anew" not in found.message


def test_a_counter_that_lags_is_legal(tmp_path):
    def lag(left, right):
        state_of(right, A)["step"] -= 3

    assert said(two(lag)(tmp_path), "CK505") == ([], [])


def test_without_counters_nothing_is_judged(tmp_path):
    findings, not_judged = said(two(optimizer=torch.optim.SGD, momentum=0.9)(tmp_path), "CK505")
    assert (findings, [one.reason for one in not_judged]) == ([], ["no update counter is on both sides"])


def _narrow(what: str, dtype: torch.dtype, back: bool = False):
    def change(left, right):
        if back:
            right |= copy.deepcopy({"model": left["model"], "optimizer": left["optimizer"]})
        entries = [right["model"]] if what == "model" else list(right["optimizer"]["state"].values())
        for one in entries:
            for key in one if what == "model" else ("exp_avg",):
                one[key] = one[key].to(dtype).float() if back else one[key].to(dtype)

    return change


@pytest.mark.parametrize(("change", "through", "count"), [
    (_narrow("state", torch.bfloat16), "bfloat16", 8), (_narrow("model", torch.float16), "float16", 8),
    (_narrow("state", torch.float64), None, 0), (_narrow("state", torch.bfloat16, back=True), "bfloat16", None),
    (_narrow("model", torch.float16, back=True), "float16", None),
])  # fmt: skip
def test_a_narrower_dtype_is_told_also_where_it_was_widened_again(tmp_path, change, through, count):
    findings, _ = said(two(change)(tmp_path), "CK504")
    assert [one.evidence["rounded_through"] for one in findings] == ([through] if through else [])
    assert not count or findings[0].evidence["count"] == count


def test_what_became_all_ones_or_zero_went_through_no_dtype(tmp_path):
    def reset(left, right):
        right["model"]["norm.weight"] = torch.ones(6)
        right["model"]["norm.bias"] = torch.zeros(6)

    assert said(two(reset)(tmp_path), "CK504") == ([], [])


def test_a_training_in_bf16_is_not_narrowed(tmp_path):
    def half(left, right):
        for side in (left, right):
            side["model"] = {name: one.bfloat16() for name, one in side["model"].items()}

    assert said(two(half)(tmp_path), "CK504") == ([], [])


def test_a_step_that_another_writer_calls_by_one_less_is_legal(tmp_path):
    def named_otherwise(left, right):
        right |= copy.deepcopy({"model": left["model"], "optimizer": left["optimizer"], "step": 2})

    assert said(two(named_otherwise)(tmp_path), "CK505") == ([], [])

"""CK2 over two checkpoints."""

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import DiffOptions
from ckptcheck.finding import Severity
from ckptcheck.verdict.two_checkpoints import pair_of
from tests.check_cases.two import Backbone, frozen, parameters, state_of, two
from tests.comparison.held import checkpoint, diff, moments, optimizer, weights
from tests.rules.judging import of_pair
from tests.rules.pairs.given import said

A = "layers.0.weight"


def _empty(left, right):
    right["optimizer"]["state"] = {}


def _empty_and_off(left, right):
    right["optimizer"]["state"] = {}
    right["optimizer"]["param_groups"][0]["momentum"] = 0


def _released(left, right):
    for key in ("optimizer", "step", "rng"):
        del right[key]


def _amsgrad_off(left, right):
    for state in right["optimizer"]["state"].values():
        del state["max_exp_avg_sq"]
    right["optimizer"]["param_groups"][0]["amsgrad"] = False


def _amsgrad_lost(left, right):
    _amsgrad_off(left, right)
    right["optimizer"]["param_groups"][0]["amsgrad"] = True


def test_all_state_gone_is_one_finding_that_counts(tmp_path):
    (found,), not_judged = said(two(_empty)(tmp_path), "CK201")
    assert found.evidence["missing"] == 8
    assert (found.where.optimizer, found.where.parameter) == (0, A)
    assert not_judged == []
    assert said(two(_empty)(tmp_path), "CK202") == ([], [])
    assert said(two(_empty)(tmp_path), "CK203") == ([], [])


def test_state_that_a_hyperparameter_switched_off_is_not_missed(tmp_path):
    momentum = {"optimizer": torch.optim.SGD, "momentum": 0.9}
    assert len(said(two(_empty, **momentum)(tmp_path), "CK201")[0]) == 1
    assert said(two(_empty_and_off, **momentum)(tmp_path), "CK201") == ([], [])
    assert said(two(_amsgrad_off, amsgrad=True)(tmp_path), "CK203") == ([], [])
    (found,), _ = said(two(_amsgrad_lost, amsgrad=True)(tmp_path), "CK203")
    assert found.evidence["missing_keys"] == ["max_exp_avg_sq"]


@pytest.mark.parametrize("code", ["CK201", "CK202", "CK203", "CK301", "CK302", "CK303", "CK304", "CK307", "CK406",
                                  "CK504", "CK505"])  # fmt: skip
def test_of_a_release_the_optimizer_is_not_judged(tmp_path, code):
    findings, not_judged = said(two(_released)(tmp_path), code)
    assert findings == []
    assert [one.reason for one in not_judged] == ["the right checkpoint holds no optimizer"]


def _lost_two(left, right):
    for name in (A, "head.bias"):
        state_of(right, name).clear()


def test_each_parameter_that_lacks_its_state_is_named_with_its_keys(tmp_path):
    findings, _ = said(two(_lost_two)(tmp_path), "CK202")
    assert [one.where.parameter for one in findings] == [A, "head.bias"]
    assert {tuple(one.evidence["keys"]) for one in findings} == {("step", "exp_avg", "exp_avg_sq")}


def test_without_names_the_state_that_is_missing_is_told_by_the_place(tmp_path):
    def lost(left, right):
        del right["optimizer"]["state"][2]

    (found,), _ = said(two(lost, groups=parameters)(tmp_path), "CK202")
    assert found.where.parameter == "layers.1.weight"


def _partial(left, right):
    state = state_of(right, A)
    del state["step"], state["exp_avg"]


def test_the_keys_that_one_parameter_lacks_are_named(tmp_path):
    (found,), _ = said(two(_partial)(tmp_path), "CK203")
    assert (found.where.parameter, found.evidence["missing_keys"]) == (A, ["step", "exp_avg"])


def _drop_backbone(left, right):
    for name in ("backbone.0.weight", "backbone.0.bias", "backbone.1.weight", "backbone.1.bias"):
        state_of(right, name).clear()


def test_state_of_what_rested_is_told_as_frozen_and_not_twice(tmp_path):
    sides = two(_drop_backbone, model=Backbone, between=frozen())(tmp_path)
    assert said(sides, "CK202") == ([], [])
    (found,), _ = said(sides, "CK406")
    assert len(found.evidence["parameters"]) == 4
    moved = two(_drop_backbone, model=Backbone)(tmp_path)
    assert len(said(moved, "CK202")[0]) == 4
    assert said(moved, "CK406") == ([], [])
    # under a contract it counts as frozen though it moved
    assert said(moved, "CK202", freeze={"backbone.*": "hold"}) == ([], [])
    assert len(said(moved, "CK406", freeze={"backbone.*": "hold"})[0]) == 1


def _keeps_weights_beside(left, right):
    for state in left["optimizer"]["state"].values():
        state["fp32_param"] = torch.ones(2)


def test_full_weights_kept_beside_may_be_elsewhere(tmp_path):
    (found,), _ = said(two(_keeps_weights_beside)(tmp_path), "CK203")
    assert found.severity is Severity.WARNING


def test_the_tensors_of_an_average_that_stood_still_are_counted_without_its_counter(tmp_path):
    def stands(left, right):
        for side in (left, right):
            average = {f"module.{name}": one * 0.5 for name, one in left["model"].items()}
            side["ema"] = average | {"n_averaged": torch.tensor(5)}
        right["ema"]["n_averaged"] = torch.tensor(6)

    (found,), _ = said(two(stands)(tmp_path), "CK208")
    weights = torch.load(tmp_path / "left.pt", weights_only=True)["model"]
    assert found.evidence["count"] == len(weights)
    assert found.where.parameter.removeprefix("module.") in weights


@pytest.mark.parametrize("first", ["whole", "lost"])
def test_of_two_optimizers_each_is_judged_by_itself(first):
    """Where the one has lost all of its state, which is another code's, the other may have lost a key."""
    state = moments()
    own = {name: state[name] for name in ("fc.weight", "fc.bias")}
    other = state["out.weight"]
    left, right = (
        checkpoint(weights(), optimizer([("fc.weight", "fc.bias")], one), optimizer([("out.weight",)], two_of_them),
                   labels=("first", "second"), step=step)
        for one, two_of_them, step in (
            (own, {"out.weight": other}, 3),
            (own if first == "whole" else {}, {"out.weight": {"step": other["step"], "exp_avg": other["exp_avg"]}}, 6),
        )
    )  # fmt: skip
    findings, _ = of_pair(pair_of(diff(left, right), DiffOptions(), {}), ("CK203",))
    assert [
        (one.where.optimizer, one.evidence.get("missing_keys") or one.evidence.get("keys")) for one in findings
    ] == [(1, ["exp_avg_sq"])]

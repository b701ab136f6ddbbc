"""Freeze contracts held against two real checkpoints."""

from pathlib import Path

import pytest
import torch

from ckptcheck.comparison.checkpoint_diff import DiffOptions
from ckptcheck.comparison.contracts import Held, held_contracts
from tests.check_cases.frozen import _decayed_by_hand, _dropped
from tests.check_cases.two import Backbone, Change, frozen, parameters, state_of, two, untouched
from tests.rules.pairs.given import diffed

W, HEAD = "backbone.0.weight", "head.weight"
STATE = ("step", "exp_avg", "exp_avg_sq")


def held(sides: tuple[Path, Path], freeze: dict[str, str], **options) -> Held:
    return held_contracts(diffed(sides, **options), freeze, DiffOptions(**options))


def kinds(found: Held) -> set[tuple[str, str]]:
    return {(one.what, one.parameter) for one in found.broken}


def of_backbone(what: str) -> set[tuple[str, str]]:
    return {(what, f"backbone.{place}.{kind}") for place in (0, 1) for kind in ("weight", "bias")}


BUFFERS = {("buffer", f"backbone.1.{name}") for name in ("running_mean", "running_var", "num_batches_tracked")}


@pytest.mark.parametrize(("between", "contract", "wanted"), [
    (frozen(), "hold", set()), (frozen(), "no-update", set()), (frozen(), "no-grad", set()),
    (frozen("zero"), "hold", of_backbone("param") | of_backbone("state")),
    (frozen("zero"), "no-update", of_backbone("param")),
    (frozen("zero"), "no-grad", of_backbone("gradient")),
    (frozen(evaluated=False), "hold", BUFFERS), (frozen(evaluated=False), "no-grad", set()),
    (frozen(), "removed", of_backbone("member")), (frozen(), "reset", of_backbone("kept-state")),
    (_dropped, "reset", set()), (_dropped, "hold", of_backbone("dropped")), (_dropped, "no-update", set()),
])  # fmt: skip
def test_each_contract_is_held_against_what_it_is_about(tmp_path, between, contract, wanted):
    found = held(two(model=Backbone, between=between)(tmp_path), {"backbone.*": contract})
    assert kinds(found) == wanted
    assert (found.not_held, found.unmatched) == ((), ())


def test_the_last_glob_that_matches_binds(tmp_path):
    sides = two(model=Backbone, between=frozen("zero"))(tmp_path)
    assert kinds(held(sides, {"*": "hold", "head.*": "no-grad", "backbone.*": "removed"})) == (
        of_backbone("member") | {("gradient", "head.weight"), ("gradient", "head.bias")}
    )


def test_a_breach_tells_how_far_and_over_how_many_updates(tmp_path):
    sides = two(model=Backbone, between=frozen("zero"))(tmp_path)
    left, right = (torch.load(side, weights_only=True) for side in sides)
    found = held(sides, {W: "hold"})
    param, state = (next(one for one in found.broken if one.what == what) for what in ("param", "state"))
    apart = (right["model"][W].double() - left["model"][W].double()).abs()
    assert param.row.difference.max_abs == apart.max().item()
    assert (param.left_count, param.right_count) == (3, 6)
    assert (state.key, state.left_count, state.right_count) == ("exp_avg", 3, 6)
    moved = state_of(right, W)["exp_avg"].double() - state_of(left, W)["exp_avg"].double()
    assert state.row.difference.max_abs == moved.abs().max().item()


def test_weight_decay_alone_is_told_by_its_factor(tmp_path):
    sides = two(model=Backbone, optimizer=torch.optim.SGD, momentum=0.9, weight_decay=0.1,
                between=_decayed_by_hand)(tmp_path)  # fmt: skip
    found = held(sides, {"backbone.*": "no-update"})
    assert {one.decay for one in found.broken} == {(1 - 0.01 * 0.1) ** 3}
    by_gradient = held(two(model=Backbone, between=frozen("zero"))(tmp_path), {"backbone.*": "no-update"})
    assert {one.decay for one in by_gradient.broken} == {None}


def test_a_buffer_is_bound_by_its_name_or_by_all_parameters_of_its_module(tmp_path):
    sides = two(model=Backbone, between=frozen(evaluated=False))(tmp_path)
    assert kinds(held(sides, {"*.running_mean": "hold"})) == {("buffer", "backbone.1.running_mean")}
    assert kinds(held(sides, {"backbone.1.weight": "hold", "backbone.1.bias": "no-update"})) == BUFFERS
    assert kinds(held(sides, {"backbone.1.weight": "hold"})) == set()


@pytest.mark.parametrize(("options", "what", "reason"), [
    ({"only": ("optimizer",)}, "param", "--only or --ignore leaves the values out"),
    ({"ignored": ("model",)}, "param", "--only or --ignore leaves the values out"),
    ({"ignored": ("exp_avg",)}, "state", "--only or --ignore leaves optimizer state out"),
    ({"ignored": ("*.running_*",)}, "buffer", "--only or --ignore leaves the buffers out"),
])  # fmt: skip
def test_what_is_not_compared_is_not_held(tmp_path, options, what, reason):
    found = held(two(model=Backbone, between=frozen())(tmp_path), {"backbone.*": "hold"}, **options)
    assert found.broken == ()
    assert {one.what for one in found.not_held} >= {what}
    assert any(one.reason.startswith(reason) and "backbone." in one.reason for one in found.not_held)


def _cast(left, right):
    right["model"] = {name: one.bfloat16() if one.is_floating_point() else one for name, one in right["model"].items()}


def _cast_and_moved(left, right):
    _cast(left, right)
    right["model"][W] = right["model"][W] + 1


def _lost(left, right):
    right["model"] = {name: one for name, one in right["model"].items() if not name.startswith("backbone.0")}


@pytest.mark.parametrize(("change", "broken", "reason"), [
    (_cast, set(), ""), (_cast_and_moved, {("param", W)}, ""),
    (_lost, set(), "the right checkpoint does not hold them under these names"),
])  # fmt: skip
def test_another_dtype_is_no_move_and_a_lost_name_is_not_judged(tmp_path, change: Change, broken, reason):
    found = held(two(change, model=Backbone, between=frozen())(tmp_path), {"backbone.0.*": "no-update"})
    assert kinds(found) == broken
    assert [one.reason.partition(":")[0] for one in found.not_held] == ([reason] if reason else [])


def test_state_without_names_is_not_held(tmp_path):
    def shuffled(left, right):
        for side in (left, right):
            side["model"] = dict(sorted(side["model"].items(), reverse=True))
            side["optimizer"]["param_groups"][0]["params"].reverse()
            del side["model"]["head.bias"]

    found = held(two(shuffled, model=Backbone, groups=parameters, between=frozen())(tmp_path), {"backbone.*": "hold"})
    assert {one.reason for one in found.not_held} == {
        f"optimizer 0 of the {side} checkpoint has no names: its members are numbered" for side in ("left", "right")
    }


def test_a_release_has_no_state_to_hold(tmp_path):
    def released(left, right):
        del right["optimizer"]

    sides = two(released, model=Backbone, between=frozen())(tmp_path)
    assert [one.reason for one in held(sides, {"backbone.*": "hold"}).not_held] == [
        "the right checkpoint holds no optimizer"
    ]
    assert held(sides, {"backbone.*": "no-update"}).not_held == ()


def test_a_pattern_that_matches_nothing_is_named(tmp_path):
    sides = two(untouched, model=Backbone, between=frozen())(tmp_path)
    assert held(sides, {"bakbone.*": "hold", "head.*": "hold"}).unmatched == ("bakbone.*",)

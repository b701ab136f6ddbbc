"""CK3 over two checkpoints: names, ties, and weights that no update reached."""

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ckptcheck.finding import Severity
from tests.check_cases.pairs import COSINE, _never_loaded, _stale, _untied
from tests.check_cases.training import Tied
from tests.check_cases.two import state_of, two, written
from tests.rules.pairs.given import said

A, B = "layers.0.weight", "layers.1.weight"


def test_all_members_that_rested_although_gradients_came_are_named(tmp_path):
    (found,), _ = said(two(_stale)(tmp_path), "CK307")
    assert len(found.evidence["parameters"]) == 8
    assert found.evidence["updates"] == 3


def _decaying(left, right):
    """No gradient reaches one layer any more: its moments decay, and what is left of them moves nothing."""
    right["model"][A] = left["model"][A].clone()
    for key, beta in (("exp_avg", 0.9), ("exp_avg_sq", 0.999)):
        state_of(right, A)[key] = state_of(left, A)[key] * beta**3


def _without_rate(left, right):
    _stale(left, right)
    right["optimizer"]["param_groups"][0]["lr"] = 0.0


def _in_half(left, right):
    _stale(left, right)
    for side in (left, right):
        side["model"] = {name: one.bfloat16() for name, one in side["model"].items()}


def _untouched_state(left, right):
    right["model"], right["optimizer"] = copy.deepcopy(left["model"]), copy.deepcopy(left["optimizer"])


@pytest.mark.parametrize("change", [_decaying, _without_rate, _in_half, _untouched_state])
def test_weights_that_may_rest_are_no_stale_reference(tmp_path, change):
    assert said(two(change)(tmp_path), "CK307") == ([], [])


def test_weights_that_were_not_compared_are_no_stale_reference(tmp_path):
    assert said(two(_stale)(tmp_path), "CK307", ignored=("model",)) == ([], [])


def test_weights_farther_than_adam_can_move_them_are_others(tmp_path):
    sides = two(_never_loaded)(tmp_path)
    (found,), _ = said(sides, "CK309")
    left, right = (torch.load(side, weights_only=True)["model"] for side in sides)
    farthest = max((right[name].double() - left[name].double()).abs().max().item() for name in left)
    assert found.evidence["moved"] == farthest
    # Kingma and Ba 2015, section 2.1: lr (1 - beta1) / sqrt(1 - beta2) a step, over three steps
    assert found.evidence["most"] == pytest.approx(3 * 0.01 * 0.1 / 0.001**0.5)
    assert (found.severity, found.evidence["of"]) == (Severity.ERROR, 8)


def _new_head(left, right):
    right["model"]["head.weight"] += 9


def _pruned(left, right):
    """Half of a layer with large weights goes to zero."""
    for side in (left, right):
        side["model"]["head.weight"] += 9
    right["model"]["head.weight"][0] = 0


def test_one_part_that_was_made_anew_is_told_where_all_updates_go_on(tmp_path):
    (found,), _ = said(two(_new_head, weight_decay=0.0)(tmp_path), "CK309")
    assert (found.where.parameter, found.severity) == ("head.weight", Severity.ERROR)
    assert found.evidence["parameters"] == ["head.weight"]
    assert said(two(_pruned, weight_decay=0.0)(tmp_path), "CK309") == ([], [])


def test_one_part_that_an_average_may_have_taken_the_place_of_is_a_warning(tmp_path):
    def averaged(left, right):
        _new_head(left, right)
        for side in (left, right):
            side["ema"] = {"shadow": copy.deepcopy(side["model"])}

    (found,), _ = said(two(averaged, weight_decay=0.0)(tmp_path), "CK309")
    assert found.severity is Severity.WARNING


def test_how_far_decay_takes_weights_is_not_told_without_their_size(tmp_path):
    assert said(two(_new_head, weight_decay=0.1)(tmp_path), "CK309") == ([], [])


def test_sgd_has_no_bound_and_a_schedule_a_wide_one(tmp_path):
    assert said(two(_never_loaded, optimizer=torch.optim.SGD, momentum=0.9)(tmp_path), "CK309") == ([], [])

    def near(left, right):
        right["model"] = {name: one + 0.3 for name, one in right["model"].items()}

    assert len(said(two(near)(tmp_path), "CK309")[0]) == 1
    assert said(two(near, **COSINE)(tmp_path), "CK309")[0] == []

    def far_at_a_rate_that_nobody_knows(left, right):
        _never_loaded(left, right)
        for side in (left, right):
            del side["optimizer"]["param_groups"][0]["initial_lr"]

    assert len(said(two(_never_loaded, **COSINE)(tmp_path), "CK309")[0]) == 1
    assert said(two(far_at_a_rate_that_nobody_knows, **COSINE)(tmp_path), "CK309")[0] == []


def _new_name(left, right):
    right["model"]["adapter.weight"] = torch.ones(3)


def _lost_name(left, right):
    del right["model"]["norm.bias"]


def _lost_layer(left, right):
    """The parameter is gone from the model and from the optimizer: as where a layer was taken out."""
    del right["model"]["norm.bias"]
    group = right["optimizer"]["param_groups"][0]
    at = group["param_names"].index("norm.bias")
    del group["param_names"][at], right["optimizer"]["state"][group["params"].pop(at)]


@pytest.mark.parametrize(("change", "severity", "evidence"), [
    (_new_name, Severity.INFO, {"left_only": [], "right_only": ["adapter.weight"]}),
    (_lost_name, Severity.ERROR,
     {"left_only": ["norm.bias"], "right_only": [], "still_stepped": ["norm.bias"]}),
    (_lost_layer, Severity.WARNING, {"left_only": ["norm.bias"], "right_only": []}),
])  # fmt: skip
def test_names_without_a_partner_are_told(tmp_path, change, severity, evidence):
    (found,), _ = said(two(change)(tmp_path), "CK309")
    assert (found.severity, dict(found.evidence)) == (severity, evidence)


def test_a_prefix_is_told_with_its_side_and_the_map_that_takes_it_off(tmp_path):
    def prefixed(left, right):
        left["model"] = {f"net.{name}": one for name, one in left["model"].items()}

    (found,), _ = said(two(prefixed)(tmp_path), "CK310")
    assert (found.evidence["prefix"], found.evidence["side"], found.evidence["count"]) == ("net.", "left", 8)
    assert "--map '^net.='" in found.fix
    assert said(two(prefixed)(tmp_path), "CK310", renames=((r"^net\.", ""),)) == ([], [])


def test_a_prefix_of_a_release_is_a_warning(tmp_path):
    def released(left, right):
        right["model"] = {f"net.{name}": one for name, one in right["model"].items()}
        del right["optimizer"]

    (found,), _ = said(two(released)(tmp_path), "CK310")
    assert found.severity is Severity.WARNING


def _copied(left, right):
    right["model"]["head.weight"] = right["model"]["head.weight"].clone()


@pytest.mark.parametrize(("change", "severity"), [(_untied, Severity.ERROR), (_copied, Severity.WARNING)])
def test_a_tie_on_one_side_is_an_error_where_the_two_differ(tmp_path, change, severity):
    (found,), _ = said(two(change, model=Tied)(tmp_path), "CK311")
    assert found.severity is severity
    assert (found.evidence["names"], found.evidence["tied"]) == (["embedding.weight", "head.weight"], "left")

    def back(left, right):
        change(right, left)

    (found,), _ = said(two(back, model=Tied)(tmp_path), "CK311")
    assert (found.severity, found.evidence["tied"]) == (severity, "right")


def test_formats_that_keep_no_ties_are_not_judged_by_them(tmp_path: Path):
    left, right = two(model=Tied)(tmp_path)
    weights = torch.load(right, weights_only=True)["model"]
    save_file({name: one.clone() for name, one in weights.items()}, tmp_path / "m.safetensors")
    assert said((left, tmp_path / "m.safetensors"), "CK311") == ([], [])


def test_the_bound_of_adam_is_not_held_against_other_optimizers(tmp_path):
    def far(left, right):
        """Of one parameter alone: what most of them do is held against any optimizer."""
        right["model"]["layers.1.weight"].normal_(0, 3)

    assert [one.code for one in said(two(far, weight_decay=0.0)(tmp_path), "CK309")[0]] == ["CK309"]
    for other in (torch.optim.RMSprop, torch.optim.Adadelta):
        assert said(two(far, optimizer=other)(tmp_path), "CK309")[0] == []


class _Norms(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(1) for _ in range(number))
        self.conv, self.head = torch.nn.Conv2d(1, 3, 3), torch.nn.Linear(3, 2)

    def forward(self, x):
        for norm in self.norms:
            x = norm(x)
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.mark.parametrize(("number", "rest"), [(1, ""), (2, ", as did norms.1.num_batches_tracked")])
def test_statistics_that_began_anew_are_told_with_all_that_did(tmp_path, number, rest):
    torch.manual_seed(0)
    states = [_Norms(number).state_dict() for _ in range(2)]
    for count, state in zip((5, 2), states, strict=True):
        for place in range(number):
            state[f"norms.{place}.num_batches_tracked"] = torch.tensor(count)
    sides = written(tmp_path, {"model": states[0], "step": 3}, {"model": states[1], "step": 6})
    told = [one for one in said(sides, "CK309")[0] if "statistics" in one.message]
    assert [one.message.partition(": ")[2] for one in told] == [f"norms.0.num_batches_tracked went from 5 to 2{rest}"]

"""What of a file is one tensor and should be two, and what is said of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.finding import Finding
from ckptcheck.rules.table import BY_CODE
from tests.check_cases.changing import put, trained
from tests.check_cases.training import Tied
from tests.samples import CHECKPOINTS

State = dict[str, Any]
FSDP = CHECKPOINTS / "09_fsdp_ddp/fsdp1_uop1_full.pt"


def told(path: Path, **options: Any) -> list[Finding]:
    return [one for one in verbs.check(path, **options).findings if one.code == "CK312"]


def told_of(folder: Path, change: Callable[[State], object], **options: Any) -> list[Finding]:
    state = trained()
    change(state)
    return told(put(folder, state), **options)


def held(state: State, place: int) -> State:
    return state["optimizer"]["state"][place]


def test_torch_reads_both_moments_of_the_kept_file_as_one_tensor():
    state = torch.load(FSDP, weights_only=False)["optimizer"]["state"]
    for one in state.values():
        moments = [one["exp_avg"], one["exp_avg_sq"]]
        assert len({(each.data_ptr(), each.stride(), each.shape) for each in moments}) == 1
    (found,) = told(FSDP)
    assert found.evidence["keys"] == ["exp_avg", "exp_avg_sq"]
    assert set(found.evidence["parameters"]) == set(state)
    assert found.evidence["count"] == len(state) == 4
    assert (found.where.parameter, found.where.key) == ("emb.weight", "exp_avg_sq")


def test_only_the_parameters_that_share_are_named(tmp_path):
    (found,) = told_of(tmp_path, lambda state: held(state, 4).update(exp_avg_sq=held(state, 4)["exp_avg"]))
    assert found.evidence["parameters"] == ["norm.weight"]
    assert "of 1 parameter in optimizer 0" in found.message


def test_the_state_of_two_parameters_is_told_once_for_all_pairs(tmp_path):
    def change(state: State) -> None:
        for key in ("exp_avg", "exp_avg_sq"):
            held(state, 2)[key] = held(state, 0)[key]

    (found,) = told_of(tmp_path, change)
    assert found.evidence["pairs"] == [
        f"{key} of layers.0.weight and {key} of layers.1.weight" for key in ("exp_avg", "exp_avg_sq")
    ]
    assert (found.where.parameter, found.evidence["shared_with"]) == ("layers.1.weight", "layers.0.weight")


SILENT: dict[str, Callable[[State], object]] = {
    "equal values in tensors of their own": lambda state: held(state, 2).update(
        exp_avg=held(state, 0)["exp_avg"].clone()
    ),
    "one buffer, but other elements of it": lambda state: held(state, 0).update(
        zip(("exp_avg", "exp_avg_sq"), torch.rand(2, 6, 6).unbind(), strict=True)
    ),
    "one buffer, read in rows and in columns": lambda state: held(state, 0).update(
        exp_avg_sq=held(state, 0)["exp_avg"].T
    ),
    "a key that the class does not have": lambda state: held(state, 0).update(shadow=held(state, 0)["exp_avg"]),
    "best weights some of which are the model's own": lambda state: state.update(
        best={**state["model"], "head.bias": torch.zeros(3)}
    ),
}


@pytest.mark.parametrize("what", SILENT)
def test_what_may_be_is_not_told(what: str, tmp_path):
    assert told_of(tmp_path, SILENT[what]) == []


def test_tied_weights_that_an_optimizer_lists_by_both_names_are_one(tmp_path):
    state = trained(model=Tied())
    names = state["optimizer"]["param_groups"][0]["param_names"]
    by_name = dict(zip(names, state["optimizer"]["state"].values(), strict=True))
    by_name["head.weight"] = by_name["embedding.weight"]
    group = {**state["optimizer"]["param_groups"][0], "params": [*by_name]}
    del group["param_names"]
    tied = {**state, "optimizer": {"state": by_name, "param_groups": [group]}}
    assert told(put(tmp_path, tied)) == []
    untied = {**tied, "model": {name: one.clone() for name, one in state["model"].items()}}
    (found,) = told(put(tmp_path, untied))
    assert {"embedding.weight", "head.weight"} == {found.where.parameter, found.evidence["shared_with"]}


def test_a_release_is_not_asked_for_its_moments(tmp_path):
    def change(state: State) -> None:
        held(state, 0)["exp_avg_sq"] = held(state, 0)["exp_avg"]

    assert told_of(tmp_path, change, purpose="release") == []


def test_an_optimizer_of_an_unknown_class_may_share_what_it_likes(tmp_path):
    def change(state: State) -> None:
        for one in state["optimizer"]["state"].values():
            one["mine"] = one.pop("exp_avg")
            one["yours"] = one.pop("exp_avg_sq")
        held(state, 0)["yours"] = held(state, 0)["mine"]
        for group in state["optimizer"]["param_groups"]:
            for key in [key for key in group if key not in ("lr", "params", "param_names")]:
                del group[key]

    assert told_of(tmp_path, change) == []


def test_weights_that_were_put_aside_are_counted(tmp_path):
    (found,) = told_of(tmp_path, lambda state: state.update(best_weights=state["model"]))
    assert str(found.severity) == "warning"
    assert found.where.key == found.evidence["weights"] == "best_weights"
    assert found.evidence["tensors"] == 8


@pytest.mark.parametrize(("key", "is_told"), [
    ("best", True), ("model_best", True), ("swa_state", True), ("teacher", True), ("net", False), ("bestiary", False),
    ("ema", False),
])  # fmt: skip
def test_only_a_key_that_says_copy_is_held_to_it(key: str, is_told: bool, tmp_path):
    assert bool(told_of(tmp_path, lambda state: state.update({key: state["model"]}))) is is_told


def test_the_card_says_what_the_rule_does_not_tell():
    card = BY_CODE["CK312"].card
    assert all(part in card for part in ("Why:", "Example:", "Fix:", "Limits:", "CK208"))

"""What `diff` says of real files: two files in, the text and the JSON out."""

import random
from copy import deepcopy
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import ckptcheck
from ckptcheck.reports.json import document
from ckptcheck.reports.page import Page
from ckptcheck.reports.text import render
from tests.reports.contract import breaches

State = dict[str, Any]


def step(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    model(torch.randn(5, 6, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()


def trained(groups=None, named: bool = False, steps: int = 2) -> State:
    """Three layers of one shape, so that only names tell whose moments are whose."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))
    held = dict(model.named_parameters())
    lists = groups or [list(held)]
    members = [{"params": [(name, held[name]) if named else held[name] for name in one]} for one in lists]
    optimizer = torch.optim.AdamW(members)
    for _ in range(steps):
        step(model, optimizer)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 0}


def two_networks() -> State:
    torch.manual_seed(1)
    model = nn.ModuleDict({"G": nn.Linear(6, 3), "D": nn.Linear(3, 2)})
    optimizers = {name: torch.optim.Adam(model[name].parameters()) for name in "GD"}
    model["D"](model["G"](torch.ones(4, 6))).sum().backward()
    for one in optimizers.values():
        one.step()
    return {"model": model.state_dict(), **{f"optim_{name}": one.state_dict() for name, one in optimizers.items()}}


@pytest.fixture
def diff(tmp_path):
    def told(left: State, right: State, **options):
        for side, state in (("left", left), ("right", right)):
            torch.save(state, tmp_path / f"{side}.pt")
        result = ckptcheck.diff(tmp_path / "left.pt", tmp_path / "right.pt", **options)
        assert breaches(document(result)) == []
        text = render(result, Page(width=400))
        assert text.endswith("\n") and not text.endswith("\n\n")
        return document(result), text

    return told


def test_optimizers_whose_keys_stand_in_another_order_are_the_same(diff):
    state = two_networks()
    document, _ = diff(state, {key: state[key] for key in ("optim_D", "model", "optim_G")})
    assert document["verdict"] == "pass"
    assert [one["left_label"] for one in document["optimizers"]] == ["optim_G", "optim_D"]


def test_an_optimizer_that_one_side_lacks_is_named_in_text_and_json(diff):
    state = two_networks()
    document, text = diff(state, {key: state[key] for key in ("model", "optim_D")})
    assert document["verdict"] == "fail"
    assert {(one["kind"], one["label"]) for one in document["differences"]} == {("removed", "optim_G")}
    assert "Optimizers   optimizer optim_G only on the left: " in text
    _, other = diff({key: state[key] for key in ("model", "optim_D")}, state)
    assert "Optimizers   optimizer optim_G only on the right: " in other


HEAD = ["2.weight", "2.bias"]
BODY = ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_names_that_are_only_guessed_make_no_difference_and_are_told(diff):
    document, text = diff(trained([HEAD, BODY]), trained([HEAD, BODY], named=True))
    assert document["verdict"] == "pass"
    assert document["paired_by"] == ["position"]
    assert any(said.startswith("optimizer 0 on the left: ") for said in document["notes"])
    assert "Paired       optimizer 0 by position: a side has no parameter names that are certain" in text


@pytest.mark.parametrize(("groups", "other"), [
    ([HEAD, BODY], [BODY, HEAD]), ([[*HEAD, *BODY]], [["2.bias", "2.weight", *BODY]]),
])  # fmt: skip
def test_groups_or_members_in_another_order_would_mix_up_the_state(diff, groups, other):
    document, text = diff(trained(groups, named=True), trained(other, named=True))
    assert document["verdict"] == "fail"
    assert [(one["key"], one["kind"], one["optimizer"]) for one in document["differences"]] == [
        ("param_groups", "moved", 0)
    ]
    assert text.startswith("FAIL  content differs in the order of param groups\n")
    assert "stand in another order: load_state_dict binds by position and would mix up their state" in text


def test_indices_that_stand_in_another_order_are_told_as_moved_state(diff):
    left = trained()
    right = deepcopy(left)
    right["optimizer"]["param_groups"][0]["params"] = [2, 1, 0, 3, 4, 5]
    document, text = diff(left, right)
    assert {one["kind"] for one in document["differences"]} == {"moved"}
    assert "moved: 0.weight / exp_avg -> 1.weight / exp_avg" in text


def test_a_parameter_in_another_group_is_a_row_as_well(diff):
    left, right = trained([HEAD, BODY], named=True), trained([[*HEAD, BODY[0]], BODY[1:]], named=True)
    document, text = diff(left, right)
    (row,) = document["differences"]
    assert (row["parameter"], row["key"], row["kind"], row["left"], row["right"]) == (
        "0.weight", "group", "moved", 1, 0
    )  # fmt: skip
    assert document["groups"] == [{"parameter": "0.weight", "optimizer": 0, "left_group": 1, "right_group": 0}]
    assert "Groups       0.weight: group 1 -> group 0\n" in text


@pytest.mark.parametrize(
    ("right", "said"), [("0", "epoch: 0 -> '0'"), (False, "epoch: 0 -> no"), (None, "epoch: 0 -> None")]
)
def test_a_value_of_another_type_is_one_line(diff, right, said):
    document, text = diff(trained(), trained() | {"epoch": right})
    assert [one["kind"] for one in document["differences"]] == ["changed"]
    assert said in text


def test_counters_and_rates_are_told_by_their_numbers(diff):
    left, right = trained(steps=5), trained(steps=5)
    right["optimizer"]["state"][0]["step"] = torch.tensor(10.0)
    right["optimizer"]["param_groups"][0]["lr"] = float("nan")
    left["optimizer"]["param_groups"][0]["eps"] = torch.tensor(0.1)
    right["optimizer"]["param_groups"][0]["eps"] = torch.tensor(0.2)
    document, text = diff(left, right)
    values = {one["key"]: (one["left"], one["right"]) for one in document["differences"]}
    assert values["step"] == (5.0, 10.0)
    assert values["lr"] == (0.001, "nan")
    assert "0.weight / step: 5 -> 10\n" in text
    assert "group 0 eps: 0.1 -> 0.2\n" in text
    assert "group 0 lr: 0.001 -> nan\n" in text


def test_a_lone_nan_has_no_distance(diff):
    right = trained()
    right["model"]["0.weight"][1, 2] = torch.nan
    _, text = diff(trained(), right)
    assert "0.weight: 1 of 36 differ, first at (1, 2), 1 NaN\n" in text


def test_generators_are_told_by_the_words_that_differ(diff):
    def drawn(draws):
        mine, theirs = random.Random(3), numpy.random.RandomState(3)
        for _ in range(draws):
            mine.random()
        theirs.random_sample(draws)
        return trained() | {"rng": {"python": mine.getstate(), "numpy": theirs.get_state()}}

    document, text = diff(drawn(1), drawn(3))
    assert {one["key"]: (one["differing"], one["numel"]) for one in document["differences"]} == {
        "python": (0, 624), "numpy": (0, 624)
    }  # fmt: skip
    assert "python: 0 of 624 words differ, position 2 -> position 6\n" in text
    _, text = diff(drawn(0), drawn(400))
    assert "numpy: 624 of 624 words differ" in text or "numpy: 623 of 624 words differ" in text
    assert len(max(text.splitlines(), key=len)) < 200


def test_where_only_names_of_the_run_differ_what_leaves_them_out_is_told(diff):
    left = trained() | {"args": {"output_dir": "a", "run_name": "x", "hostname": "h"}}
    right = trained() | {"args": {"output_dir": "b", "run_name": "y", "hostname": "h"}}
    document, text = diff(left, right)
    assert document["verdict"] == "fail"
    assert (
        "only paths and names of the run differ; --ignore '*output_dir*' --ignore '*run_name*' leaves them out" in text
    )
    document, _ = diff(left, right, without=("*output_dir*", "*run_name*"))
    assert document["verdict"] == "pass"
    _, text = diff(left, right | {"epoch": 1})
    assert "names of the run" not in text


def test_orphaned_state_is_named_and_the_numbers_agree(tmp_path):
    state = trained(named=True)
    state["optimizer"]["state"][9] = deepcopy(state["optimizer"]["state"][0])
    torch.save(state, tmp_path / "orphan.pt")
    text = render(ckptcheck.inspect(tmp_path / "orphan.pt"), Page(width=300))
    assert "state of 6 of 6 parameters (step, exp_avg, exp_avg_sq) and of #9, in no group" in text
    assert "7 of 6" not in text

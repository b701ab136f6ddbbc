"""A training state flattened into dotted keys says the same as the nested one."""

import json
from typing import Any

import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.flat import nested
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.state.tree import flatten
from tests.conventions.made import raw_tree


def training() -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    names = [name for name, _ in model.named_parameters()]
    state = optimizer.state_dict()
    keyed = {
        "state": {names[index]: kept for index, kept in state["state"].items()},
        "param_groups": [{**group, "params": names} for group in state["param_groups"]],
    }
    return {"model": model.state_dict(), "optimizer": keyed, "scheduler": scheduler.state_dict(), "step": {"global": 1}}


def flat(root: dict[str, Any]) -> Checkpoint:
    leaves = {path.replace("[", ".").replace("]", ""): leaf for path, leaf in flatten(root)}
    tensors = {path: leaf for path, leaf in leaves.items() if isinstance(leaf, torch.Tensor)}
    texts = {path: json.dumps(leaf) for path, leaf in leaves.items() if path not in tensors}
    return explain(raw_tree(tensors, "safetensors", metadata={"format": "pt", **texts}))


def said(checkpoint: Checkpoint) -> Any:
    state = checkpoint.state
    (optimizer,) = state.optimizers
    return {
        "parameters": {name: one.entry.spec for name, one in state.parameters.items()},
        "buffers": {name: one.spec for name, one in state.buffers.items()},
        "members": [group.members for group in optimizer.groups],
        "values": [
            {path: (one.digest, one.value) for path, one in group.hyperparameters.items()} for group in optimizer.groups
        ],
        "state": {name: {key: one.spec for key, one in kept.items()} for name, kept in optimizer.state.items()},
        "schedule": {path: (one.digest, one.value) for path, one in state.sections["schedule"].items()},
    }


def test_flat_and_nested_say_the_same() -> None:
    root = training()
    left, right = explain(raw_tree(root)), flat(root)
    assert (left.convention, right.convention) == ("plain", "flat")
    assert said(right) == said(left)
    assert right.namings[0].source is NameSource.KEYS


def test_numbers_that_are_tensors_are_numbers() -> None:
    leaves = {
        "model.weight": torch.zeros(2),
        "optimizer.param_groups.0.lr": torch.tensor(0.1, dtype=torch.float64),
        "optimizer.param_groups.0.amsgrad": torch.tensor(True),
        "optimizer.param_groups.0.weight_decay": torch.tensor(0.5),
        "optimizer.state.weight.step": torch.tensor(4.0),
    }
    (optimizer,) = explain(raw_tree(leaves, "safetensors")).state.optimizers
    values = optimizer.groups[0].hyperparameters
    assert (values["lr"].value, values["amsgrad"].value) == (0.1, True)
    assert values["weight_decay"].ref is not None  # a float32 is no number of Python's
    assert list(optimizer.state) == ["weight"]


def test_indices_are_indices_again() -> None:
    leaves = {
        "model.0.weight": torch.zeros(2),
        "optimizer.state.0.exp_avg": torch.zeros(2),
        "optimizer.param_groups.0.params.0": torch.tensor(0),
    }
    found = explain(raw_tree(leaves, "safetensors"))
    assert list(found.state.optimizers[0].state) == ["0.weight"]
    assert found.namings[0].source is NameSource.MODEL_ORDER


def test_a_state_key_with_dots_is_split_at_the_models_name() -> None:
    found = nested({"model.a.b": 1, "optimizer.state.a.b.exp_avg.codes": 2, "optimizer.state.c.exp_avg": 3})
    assert found["optimizer"]["state"] == {"a.b": {"exp_avg.codes": 2}, "c": {"exp_avg": 3}}


def test_a_state_key_with_half_a_million_dots_is_split_at_the_models_name() -> None:
    dots = "a." * 500_000
    found = nested({"model.a.a": 1, f"optimizer.state.{dots}b": 2, f"optimizer.state.x{dots}b": 3})
    assert found["optimizer"]["state"] == {"a.a": {f"{dots[4:]}b": 2}, f"x{dots[:-1]}": {"b": 3}}


def test_a_value_where_a_dict_has_to_be_is_not_lost() -> None:
    found = nested({"optimizer.state.a.step": 1, "x.y": 1, "x.y.z": 2})
    assert found["x"] == {"y": 1, "y.z": 2}


def test_a_bare_model_with_dotted_names_is_not_taken_apart() -> None:
    found = explain(raw_tree(nn.Sequential(nn.Linear(2, 2)).state_dict(), "safetensors"))
    assert found.convention == "plain"
    assert list(found.state.parameters) == ["0.weight", "0.bias"]


def test_metadata_that_is_no_json_stays_text() -> None:
    leaves = {"model.w": torch.zeros(2), "optimizer.state.w.step": torch.tensor(1.0)}
    deep = "[" * 5000
    texts = {"notes.a": "hello", "notes.b": deep, "notes.c": "[1, 2]", "ignored": "1"}
    extra = explain(raw_tree(leaves, "safetensors", metadata=texts)).state.sections["extra"]
    assert extra["notes.a"].value == "'hello'"
    assert extra["notes.b"].value == repr(deep)
    assert [extra[f"notes.c[{place}]"].value for place in (0, 1)] == [1, 2]
    assert "ignored" not in extra


def test_state_without_groups_is_an_optimizers_all_the_same() -> None:
    leaves = {"model.a.w": torch.zeros(2), "optimizer.state.a.w.exp_avg": torch.zeros(2)}
    found = explain(raw_tree(leaves, "safetensors"))
    (optimizer,) = found.state.optimizers
    assert (optimizer.groups, list(optimizer.state)) == ((), ["a.w"])
    assert found.namings[0].source is NameSource.KEYS

"""Distributed checkpoints by their forms: keyed by name, flattened, keyed by index, of FSDP, Lightning, torchtitan."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, get_state_dict

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.flat_optimizer import is_flat
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from tests.conventions.made import raw_tree
from tests.readers.dcp_folders import SAMPLES, loaded, save
from tests.readers.live_values import bytes_of

NAMED = {"dcp_flatopt": "optimizer", "dcp_fsdp1_uop1_sharded": "optim", "dcp_fsdp2": "optimizer", "dcp_plain": "optim"}
SHAPES = {
    "emb.weight": (7, 4), "fc.weight": (3, 4), "fc.bias": (3,), "frozen.weight": (3, 3), "frozen.bias": (3,),
    "head.weight": (7, 3),
}  # fmt: skip


def sample(name: str) -> Checkpoint:
    return explain(read_raw(SAMPLES / name))


def states(checkpoint: Checkpoint) -> dict[tuple[str, str], bytes]:
    (optimizer,) = checkpoint.state.optimizers
    return {(name, key): bytes(one.ref.fetch()) for name, kept in optimizer.state.items() for key, one in kept.items()}


def groups(checkpoint: Checkpoint) -> list[tuple[tuple[str | None, ...], Any]]:
    (optimizer,) = checkpoint.state.optimizers
    return [(one.members, one.hyperparameters["weight_decay"].value) for one in optimizer.groups]


@pytest.mark.parametrize("name", NAMED)
def test_state_keyed_by_name_comes_to_its_parameter(name, tmp_path):
    checkpoint = sample(name)
    whole = loaded(SAMPLES / name, tmp_path / "whole.pt")
    whole = whole.get("app", whole)
    assert {key: one.entry.spec.shape for key, one in checkpoint.state.parameters.items()} == SHAPES
    wanted = {}
    for key, value in whole["optimizer" if "optimizer" in whole else "optim"].items():
        if name == "dcp_flatopt" and key.startswith("state."):
            parameter, _, inner = key.removeprefix("state.").rpartition(".")
            wanted[parameter, inner] = bytes_of(value)
        elif name != "dcp_flatopt" and key == "state":
            wanted = {(one, inner): bytes_of(t) for one, kept in value.items() for inner, t in kept.items()}
    assert len(wanted) == 12
    assert states(checkpoint) == wanted
    naming = checkpoint.namings[0]
    assert (naming.source, naming.certain) == (NameSource.KEYS, True)


@pytest.mark.parametrize("name", ["dcp_fsdp2", "dcp_plain", "dcp_flatopt"])
def test_groups_have_their_members_and_hyperparameters(name):
    assert groups(sample(name)) == [(("emb.weight", "fc.weight", "head.weight"), 0.1), (("fc.bias",), 0.0)]


def test_a_flattened_optimizer_says_that_its_groups_were_made_here():
    assert any("stand as one group" in note for note in sample("dcp_flatopt").notes)
    assert sample("dcp_fsdp2").notes == ()


def test_index_keyed_state_stays_under_its_indices_where_nothing_names_them():
    checkpoint = sample("dcp_raw_optim")
    assert {name for name, _ in states(checkpoint)} == {"#0", "#1", "#2", "#3"}
    assert not checkpoint.namings[0].certain


def test_torchtitans_train_state_is_progress_and_the_rest_is_explained():
    checkpoint = sample("dcp_fsdp2")
    root = read_raw(SAMPLES / "dcp_fsdp2").root
    sections = checkpoint.state.sections
    assert "train_state.step" in sections["progress"]
    assert sections["schedule"]["last_epoch"].value == root["lr_scheduler"]["last_epoch"]
    assert {path.partition(".")[0] for path in sections["extra"]} == {"train_state"}
    assert root["train_state"]["tokens"] in [one.value for one in sections["extra"].values()]


def test_generators_at_the_top_are_no_weights():
    checkpoint = sample("dcp_plain")
    assert list(checkpoint.state.rng) == ["torch"]
    assert checkpoint.state.rng["torch"].spec.shape == (5056,)


class Net(torch.nn.Module):
    """A child named as a state key is, a parameter whose name begins with another's, a frozen one, a tie."""

    def __init__(self) -> None:
        super().__init__()
        self.exp_avg = torch.nn.Linear(2, 3)
        self.a = torch.nn.Module()
        self.a.b = torch.nn.Parameter(torch.randn(4))
        self.a_b = torch.nn.Parameter(torch.randn(4))
        self.frozen = torch.nn.Parameter(torch.randn(2), requires_grad=False)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.exp_avg(x)).sum() + (self.a.b * self.a_b).sum()


def trained() -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(1)
    net = Net()
    decayed = [net.exp_avg.weight, net.a.b]
    others = [net.exp_avg.bias, net.a_b, net.norm.weight, net.norm.bias]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}])
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(5, 2)).backward()
        optimizer.step()
    return net, optimizer


def live(net: Net, optimizer: torch.optim.Optimizer) -> dict[tuple[str, str], bytes]:
    """What the optimizer itself holds, by name."""
    names = {parameter: name for name, parameter in net.named_parameters()}
    return {
        (names[parameter], key): bytes_of(value)
        for parameter, kept in optimizer.state.items()
        for key, value in kept.items()
    }


def form_of(form: str, net: Net, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """A form of the optimizer's state, with the model at its key or at the top."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if form == "get_state_dict":
            model, state = get_state_dict(net, optimizer)
            return {"model": model, "optimizer": state}
        flat = StateDictOptions(flatten_optimizer_state_dict=True)
        state = get_optimizer_state_dict(net, optimizer, options=flat)
    parts = {"optimizer": state, "train_state": {"step": torch.tensor(2), "ntokens_seen": torch.tensor(640)}}
    if form == "torchtitan":
        return {**net.state_dict(), **parts}
    return (
        {"state": {"weights": net.state_dict()}, **parts} if form == "nested" else {"model": net.state_dict(), **parts}
    )


@pytest.mark.parametrize("form", ["get_state_dict", "flattened", "torchtitan", "nested"])
def test_a_live_optimizer_comes_back_by_name_from_every_form(form, tmp_path):
    net, optimizer = trained()
    checkpoint = explain(read_raw(save(form_of(form, net, optimizer), tmp_path / "saved")))
    assert states(checkpoint) == live(net, optimizer)
    assert {name: bytes(one.entry.ref.fetch()) for name, one in checkpoint.state.parameters.items()} == {
        name: bytes_of(one) for name, one in net.named_parameters()
    }
    assert set(checkpoint.state.buffers) == {name for name, _ in net.named_buffers()}
    assert [(set(members), decay) for members, decay in groups(checkpoint)] == [
        ({"exp_avg.weight", "a.b"}, 0.5),
        ({"exp_avg.bias", "a_b", "norm.weight", "norm.bias"}, 0.0),
    ]
    if form != "get_state_dict":
        assert checkpoint.state.step == 2
    assert checkpoint.unrecognised == ()


def test_raw_state_of_one_process_is_named_by_the_models_order(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.randn(5, 2)).sum().backward()
    optimizer.step()
    folder = save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "saved")
    checkpoint = explain(read_raw(folder))
    assert states(checkpoint) == live(net, optimizer)
    assert checkpoint.namings[0].source == NameSource.MODEL_ORDER


def test_an_optimizer_alone_is_split_at_its_last_dot(tmp_path):
    net, optimizer = trained()
    parts = form_of("flattened", net, optimizer)
    checkpoint = explain(read_raw(save({"optimizer": parts["optimizer"]}, tmp_path / "saved")))
    assert states(checkpoint) == live(net, optimizer)


def test_hyperparameters_that_are_tensors_group_by_their_bytes():
    flat = {}
    for name, rate in (("a", 0.5), ("b", 0.25), ("c", 0.5)):
        flat[f"param_groups.{name}.lr"] = torch.tensor(rate)
        flat[f"state.{name}.momentum_buffer"] = torch.ones(2)
    checkpoint = explain(raw_tree({"model": {key: torch.ones(2) for key in "abc"}, "optimizer": flat}, "dcp"))
    assert [one.members for one in checkpoint.state.optimizers[0].groups] == [("a", "c"), ("b",)]


def test_a_name_that_another_begins_with_takes_no_state_from_it():
    flat = {f"state.{name}.exp_avg": torch.ones(2) for name in ("a", "a.b")}
    checkpoint = explain(raw_tree({"model": {"a": torch.ones(2), "a.b": torch.ones(2)}, "optimizer": flat}, "dcp"))
    assert set(states(checkpoint)) == {("a", "exp_avg"), ("a.b", "exp_avg")}


def test_an_order_that_ranks_have_mixed_names_nothing():
    root = {
        "model": {"b": torch.ones(2), "a": torch.ones(2)},
        "optimizer": {
            "state": {"0": {"exp_avg": torch.ones(2)}, "1": {"exp_avg": torch.ones(2)}},
            "param_groups": [{"lr": 0.1, "params": [0, 1]}],
        },
    }
    assert explain(raw_tree(root, "dcp")).namings[0].source == NameSource.MODEL_ORDER
    assert explain(raw_tree(root, "dcp", unordered=("optimizer",))).namings[0].source == NameSource.MODEL_ORDER
    assert explain(raw_tree(root, "dcp", unordered=("model",))).namings[0].source == NameSource.NONE


def test_generators_and_counters_beside_torchtitans_weights_are_no_weights():
    net, optimizer = trained()
    beside = {"rng": torch.zeros(5056, dtype=torch.uint8), "step": torch.tensor(9)}
    checkpoint = explain(raw_tree({**form_of("torchtitan", net, optimizer), **beside}, "dcp"))
    assert set(checkpoint.state.parameters) == {name for name, _ in net.named_parameters()}
    assert set(checkpoint.state.buffers) == {name for name, _ in net.named_buffers()}
    assert list(checkpoint.state.rng) == ["torch"]


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        ({"state.a.step": 1}, True),
        ({"state.a.step": 1, "param_groups.a.lr": 2}, True),
        ({"state.a.step": 1, "other": 2}, False),
        ({"state": {}, "param_groups": []}, False),
        ({0: 1}, False),
        ({}, False),
        ([], False),
    ],
)
def test_flat_optimizers_are_told_by_their_keys(value, flat):
    assert is_flat(value) is flat


def lightning_folder(folder: Path) -> tuple[Net, torch.optim.Optimizer, Path]:
    net, optimizer = trained()
    model, state = get_state_dict(net, optimizer)
    save({"model": model, "optimizer_0": state}, folder)
    meta = {"epoch": 1, "global_step": 2, "pytorch-lightning_version": "2.6.6", "lr_schedulers": [], "callbacks": {}}
    torch.save(meta, folder / "meta.pt")
    return net, optimizer, folder


def test_a_sharded_lightning_checkpoint_is_lightnings(tmp_path):
    net, optimizer, folder = lightning_folder(tmp_path / "last.ckpt")
    checkpoint = explain(read_raw(folder))
    assert checkpoint.convention == "lightning"
    assert (checkpoint.state.step, checkpoint.recorded_step) == (2, "global_step 2")
    assert states(checkpoint) == live(net, optimizer)
    assert set(checkpoint.state.parameters) == {name for name, _ in net.named_parameters()}


def test_a_file_beside_that_is_not_lightnings_stands_under_its_keys(tmp_path):
    folder = save({"model": {"w": torch.ones(2)}}, tmp_path / "saved")
    torch.save({"iteration": 7}, folder / "meta.pt")
    torch.save({"args": {"lr": 1.0}}, folder / "common.pt")
    state = explain(read_raw(folder)).state
    assert state.step == 7
    assert "common.pt.args.lr" in state.sections["extra"]

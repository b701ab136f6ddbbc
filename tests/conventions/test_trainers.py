"""Folders and files of trainers, as they write them in runs of several processes, mixed precision, several models."""

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.readers.reading import read_raw
from tests.conventions.made import folder, raw_tree
from tests.samples import CHECKPOINTS

MODEL = nn.Linear(3, 2)
OPTIMIZER = torch.optim.AdamW(MODEL.parameters(), lr=0.1)
MODEL(torch.ones(4, 3)).sum().backward()
OPTIMIZER.step()
SCHEDULER = torch.optim.lr_scheduler.StepLR(OPTIMIZER, 3).state_dict()
OTHER = nn.Linear(3, 2).state_dict()
STATE, GROUPS = MODEL.state_dict(), OPTIMIZER.state_dict()
SCALER = torch.amp.GradScaler("cpu").state_dict()


def rng(seed: int) -> dict[str, Any]:
    return {
        "python": random.Random(seed).getstate(),
        "numpy": np.random.RandomState(seed).get_state(),
        "cpu": torch.Generator().manual_seed(seed).get_state(),
    }


def trainer(**more: Any) -> dict[str, Any]:
    state = {"global_step": 40, "epoch": 1.5, "max_steps": 100, "log_history": [{"loss": 0.5, "step": 40}]}
    return {"trainer_state.json": state, "model.safetensors": STATE, "optimizer.pt": GROUPS, **more}


def test_a_trainers_folder_of_two_processes_with_mixed_precision() -> None:
    files = trainer(
        **{"scheduler.pt": SCHEDULER, "scaler.pt": SCALER, "rng_state_0.pth": rng(0), "rng_state_1.pth": rng(1)}
    )
    found = explain(folder(files))
    assert (found.convention, found.world_size) == ("hf-trainer", 2)
    assert (found.state.step, found.recorded_step) == (40, "global_step 40 (trainer_state.json)")
    assert sorted(found.state.rng) == [
        "numpy", "numpy (rank 1)", "python", "python (rank 1)", "torch", "torch (rank 1)",
    ]  # fmt: skip
    sections = found.state.sections
    assert {path: one.value for path, one in sections["progress"].items()} == {"global_step": 40, "epoch": 1.5}
    assert (len(sections["schedule"]), len(sections["scaler"])) == (8, 5)
    assert sections["extra"]["trainer_state.json.log_history[0].loss"].value == 0.5
    assert found.unrecognised == ()


def test_a_trainers_folder_with_the_model_alone() -> None:
    found = explain(folder({"trainer_state.json": {"global_step": 3}, "pytorch_model.bin": STATE}))
    assert found.convention == "hf-trainer"
    assert not found.state.optimizers
    assert found.world_size is None


def test_a_trainers_adapter_says_that_the_base_is_absent() -> None:
    files = trainer(**{"adapter_config.json": {"r": 2}, "adapter_model.safetensors": STATE})
    del files["model.safetensors"]
    found = explain(folder(files))
    assert found.convention == "hf-trainer"
    assert len(found.state.parameters) == 2
    assert "base model" in found.notes[0]


def test_an_adapter_alone_is_peft() -> None:
    found = explain(folder({"adapter_config.json": {"r": 2}, "adapter_model.bin": STATE}))
    assert (found.convention, len(found.state.parameters)) == ("peft", 2)
    assert found.state.sections["extra"]["adapter_config.json.r"].value == 2


def test_accelerate_with_two_models_optimizers_and_processes() -> None:
    files = {
        "pytorch_model.bin": STATE,
        "pytorch_model_1.bin": OTHER,
        "optimizer.bin": GROUPS,
        "optimizer_1.bin": GROUPS,
        "scheduler.bin": SCHEDULER,
        "scheduler_1.bin": SCHEDULER,
        "sampler.bin": {"seed": 3},
        "scaler.pt": SCALER,
        **{
            f"random_states_{rank}.pkl": {
                "step": 5,
                "random_state": rng(rank)["python"],
                "numpy_random_seed": rng(rank)["numpy"],
                "torch_manual_seed": rng(rank)["cpu"],
            }
            for rank in (0, 1)
        },
        "custom_checkpoint_0.pkl": {"epoch": 1},
    }
    found = explain(folder(files))
    state = found.state
    assert (found.convention, found.world_size, state.step, found.recorded_step) == ("accelerate", 2, None, "")
    assert list(state.parameters) == [
        "model.weight", "model.bias", "model_1.weight", "model_1.bias",
    ]  # fmt: skip
    assert found.optimizer_labels == ("optimizer", "optimizer_1")
    assert len(state.optimizers) == 2
    assert {path.split(".")[0] for path in state.sections["schedule"]} >= {"[0]", "[1]"}
    assert state.sections["data"]["sampler.seed"].value == 3
    assert len(state.rng) == 6
    assert state.sections["extra"]["custom_checkpoint_0.epoch"].value == 1


@pytest.mark.parametrize(
    "paths",
    [
        ("model.safetensors", "model_1.safetensors"),
        ("pytorch_model.bin", "pytorch_model_1.bin"),
        ("pytorch_model_fsdp.bin", "pytorch_model_fsdp_1.bin"),
        ("pytorch_model_fsdp_1", "pytorch_model_fsdp_0"),
    ],
)
def test_accelerates_models_have_the_same_names_in_every_format(paths: tuple[str, str]) -> None:
    states = {path: nn.Linear(2, 3 + path.count("_1")).state_dict() for path in paths}
    found = explain(folder({**states, "random_states_0.pkl": {"step": 5}}))
    shapes = {name: one.entry.spec.shape for name, one in found.state.parameters.items() if one.entry.spec is not None}
    assert shapes == {"model.weight": (3, 2), "model.bias": (3,), "model_1.weight": (4, 2), "model_1.bias": (4,)}
    assert list(found.models) == ["model", "model_1"]


def test_accelerate_without_its_random_states_is_told_by_its_numbered_files() -> None:
    files = {"pytorch_model.bin": STATE, "pytorch_model_1.bin": OTHER, "optimizer.bin": GROUPS}
    found = explain(folder(files))
    assert (found.convention, found.world_size) == ("accelerate", None)
    assert "model_1.weight" in found.state.parameters
    assert explain(folder({"model_1.pt": STATE, "optimizer.bin": GROUPS})).convention == "plain"


def test_the_second_model_of_accelerate_keeps_its_name_where_the_first_is_lost() -> None:
    found = explain(folder({"model_1.safetensors": STATE, "random_states_0.pkl": {}}))
    assert list(found.state.parameters) == ["model_1.weight", "model_1.bias"]


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "weights.pt", "a/net.pt"])
def test_the_model_of_loose_files_has_no_prefix_whatever_it_is_called(name: str) -> None:
    found = explain(
        folder({name: STATE, "a/optimizer.pt": GROUPS, "critic.pt": OTHER} if "_" in name else {name: STATE})
    )
    assert list(found.state.parameters) == ["weight", "bias"]
    assert found.optimizer_labels in ((), ("",))


def test_two_files_of_one_accelerate_model_are_both_kept() -> None:
    found = explain(folder({"model.safetensors": STATE, "pytorch_model.bin": OTHER, "random_states_0.pkl": {}}))
    assert list(found.models) == ["model", "pytorch_model"]


def test_the_model_that_trains_is_not_the_average_that_lightning_keeps_in_its_place() -> None:
    current, average = nn.Linear(3, 2).state_dict(), nn.Linear(3, 2).state_dict()
    count = torch.tensor(7)
    root = {
        "global_step": 20, "pytorch-lightning_version": "2.6.6", "state_dict": average, "optimizer_states": [GROUPS],
        "current_model_state": current, "averaging_state": {"n_averaged": count},
    }  # fmt: skip
    found = explain(raw_tree(root))
    held = {name: bytes(one.entry.ref.fetch()) for name, one in found.state.parameters.items() if one.entry.ref}
    assert held == {name: one.numpy().tobytes() for name, one in current.items()}
    ema = {name: bytes(one.ref.fetch()) for name, one in found.state.sections["ema"].items() if one.ref}
    assert ema == {name: one.numpy().tobytes() for name, one in {**average, "n_averaged": count}.items()}
    assert list(found.models) == ["ema"]
    assert found.unrecognised == ()
    assert list(found.state.optimizers[0].state) == ["weight", "bias"]


def test_lightnings_keys_of_an_average_alone_are_a_users_own() -> None:
    root = {"pytorch-lightning_version": "2.6.6", "state_dict": STATE, "averaging_state": {"n_averaged": 3}}
    found = explain(raw_tree(root))
    assert found.unrecognised == ("averaging_state",)
    assert len(found.state.parameters) == 2


def test_lightning_with_a_scaler_and_a_data_module() -> None:
    root = {
        "epoch": 1,
        "global_step": 20,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": {f"net.{name}": one for name, one in STATE.items()},
        "loops": {"fit_loop": {"epoch_progress": {"total": {"ready": 1}}}},
        "callbacks": {"ModelCheckpoint": {"best_k_models": {"a.ckpt": torch.tensor(0.5)}}},
        "optimizer_states": [GROUPS],
        "lr_schedulers": [SCHEDULER],
        "MixedPrecision": SCALER,
        "MyData": {"index": 17},
    }
    found = explain(raw_tree(root))
    assert found.convention == "lightning"
    assert (found.state.step, found.recorded_step) == (20, "global_step 20")
    assert list(found.state.parameters) == ["net.weight", "net.bias"]
    assert found.state.optimizers[0].groups[0].members == ("net.weight", "net.bias")
    assert set(found.state.sections) == {"schedule", "scaler", "progress", "extra"}
    assert found.state.sections["progress"]["loops.fit_loop.epoch_progress.total.ready"].value == 1
    assert found.unrecognised == ("MyData",)


def test_loose_files_of_a_script_are_sorted_by_their_names_and_content() -> None:
    files = {"model.pt": STATE, "optimizer.pt": GROUPS, "scheduler.pt": SCHEDULER, "meta.json": {"step": 4}}
    found = explain(folder(files))
    assert found.convention == "plain"
    assert list(found.state.parameters) == ["weight", "bias"]
    assert found.state.optimizers[0].groups[0].members == ("weight", "bias")
    assert len(found.state.sections["schedule"]) == 8
    assert found.recorded_step == "meta.step 4"


def test_a_trainers_folder_that_deepspeed_saved_into_has_both_their_parts(tmp_path: Path) -> None:
    samples = CHECKPOINTS
    shutil.copytree(samples / "10_deepspeed/z1_fp32", tmp_path / "c")
    for name in ("trainer_state.json", "rng_state.pth", "config.json"):
        shutil.copy(samples / "04_hf_trainer/checkpoint-2" / name, tmp_path / "c" / name)
    found, alone = explain(read_raw(tmp_path / "c")), explain(read_raw(samples / "10_deepspeed/z1_fp32"))
    assert (found.convention, alone.convention) == ("hf-trainer", "deepspeed")
    assert found.recorded_step == "global_step 2 (trainer_state.json)"
    assert found.namings == alone.namings
    assert list(found.state.parameters) == list(alone.state.parameters)
    assert [list(one.state) for one in found.state.optimizers] == [list(one.state) for one in alone.state.optimizers]
    assert set(found.state.rng) == {"torch", "numpy", "python"}
    assert set(alone.state.sections) <= set(found.state.sections)
    assert "config.json.n_layer" in found.state.sections["extra"]
    assert found.unrecognised == alone.unrecognised == ()


def test_a_trainers_sharded_folders_of_fsdp_are_unwrapped() -> None:
    names = [name for name, _ in MODEL.named_parameters()]
    keyed = {
        "state": {names[index]: kept for index, kept in GROUPS["state"].items()},
        "param_groups": [{**group, "params": names} for group in GROUPS["param_groups"]],
    }
    files = {
        "trainer_state.json": {"global_step": 3},
        "pytorch_model_fsdp_0": {"model": STATE},
        "optimizer_0": {"optimizer": keyed},
    }
    found = explain(folder(files))
    assert list(found.state.parameters) == names
    assert found.state.optimizers[0].groups[0].members == tuple(names)

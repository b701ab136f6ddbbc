"""Real checkpoints of real writers: counted by torch itself, and held against what is explained."""

import json
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from ckptcheck.conventions.explaining import explain
from ckptcheck.optimizers.guessing import guess
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from tests.samples import CHECKPOINTS

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
Counts = tuple[int, int, list[tuple[int, int, int]]]
"""Parameters, buffers, and for each optimizer its groups, members and state tensors."""


def explained(path: str) -> Checkpoint:
    return explain(read_raw(CHECKPOINTS / path))


def loaded(path: str | Path | BytesIO) -> Any:
    return torch.load(path if isinstance(path, BytesIO) else CHECKPOINTS / path, weights_only=False)


def model_counts(names: list[str]) -> tuple[int, int]:
    buffers = sum(name.endswith(BUFFERS) for name in names)
    return len(names) - buffers, buffers


def optimizer_counts(state: dict[str, Any]) -> tuple[int, int, int]:
    def tensors(value: Any) -> int:
        if isinstance(value, torch.Tensor):
            return 1
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return sum(map(tensors, inner))

    groups = state["param_groups"]
    return len(groups), sum(len(group["params"]) for group in groups), tensors(state["state"])


def counts(found: Checkpoint) -> Counts:
    state = found.state
    optimizers = [
        (
            len(one.groups),
            sum(len(group.members) for group in one.groups),
            sum(entry.spec is not None for kept in one.state.values() for entry in kept.values()),
        )
        for one in state.optimizers
    ]
    return len(state.parameters), len(state.buffers), optimizers


def of_file(model: str | None, *optimizers: str) -> Callable[[str], Counts]:
    """Counts of a file that torch.load reads: keys of its model and of its optimizers, "" for the file itself."""

    def count(path: str) -> Counts:
        root = loaded(path)
        held = {} if model is None else root[model] if model else root
        return (*model_counts(list(held)), [optimizer_counts(root[key] if key else root) for key in optimizers])

    return count


def of_lightning(path: str) -> Counts:
    root = loaded(path)
    return (
        *model_counts(list(root["state_dict"])),
        [optimizer_counts(one) for one in root.get("optimizer_states", [])],
    )


def of_folder(model: str, optimizer: str) -> Callable[[str], Counts]:
    def count(path: str) -> Counts:
        if model.endswith(".safetensors"):
            with safe_open(CHECKPOINTS / path / model, "pt") as held:
                names = list(held.keys())
        else:
            names = list(loaded(f"{path}/{model}"))
        return (*model_counts(names), [optimizer_counts(loaded(f"{path}/{optimizer}"))])

    return count


def of_sb3(path: str) -> Counts:
    with zipfile.ZipFile(CHECKPOINTS / path) as archive:
        files = {name: loaded(BytesIO(archive.read(name))) for name in archive.namelist() if name.endswith(".pth")}
    names = [*files["policy.pth"], *files["pytorch_variables.pth"]]
    optimizers = [one for name, one in files.items() if "optimizer" in name]
    return (*model_counts(names), [optimizer_counts(one) for one in optimizers])


CASES: list[tuple[str, str, Callable[[str], Counts]]] = [
    ("01_torch_save/zip_full.pt", "plain", of_file("model", "optimizer")),
    ("01_torch_save/legacy_full.pt", "plain", of_file("model", "optimizer")),
    ("01_torch_save/zip_proto5.pt", "plain", of_file("model", "optimizer")),
    ("01_torch_save/zip_compile_prefix.pt", "plain", of_file("")),
    ("01_torch_save/zip_sgd_noname.pt", "plain", of_file(None, "")),
    ("01_torch_save/zip_lbfgs.pt", "plain", of_file(None, "")),
    ("01_torch_save/sched_seq.pt", "plain", of_file(None)),
    ("04_hf_trainer/checkpoint-2", "hf-trainer", of_folder("model.safetensors", "optimizer.pt")),
    ("04_hf_trainer/checkpoint-4", "hf-trainer", of_folder("model.safetensors", "optimizer.pt")),
    ("05_hf_trainer_peft/checkpoint-2", "hf-trainer", of_folder("adapter_model.safetensors", "optimizer.pt")),
    ("06_accelerate_bin/checkpoint_1", "accelerate", of_folder("pytorch_model.bin", "optimizer.bin")),
    ("06_accelerate_safe/checkpoint_1", "accelerate", of_folder("model.safetensors", "optimizer.bin")),
    ("07_lightning/pl.ckpt", "lightning", of_lightning),
    ("07_lightning/pl_two_opts.ckpt", "lightning", of_lightning),
    ("07_lightning/pl_weightsonly.ckpt", "lightning", of_lightning),
    ("07_lightning/fabric.ckpt", "plain", of_file("model", "optimizer")),
    ("09_fsdp_ddp/fsdp2_full.pt", "plain", of_file("model", "optimizer")),
    ("09_fsdp_ddp/fsdp1_uop1_full.pt", "fsdp", of_file("model", "optimizer")),
    ("09_fsdp_ddp/zero_redundancy_ddp.pt", "plain", of_file("model", "optimizer")),
    ("11_nanogpt/ckpt.pt", "nanogpt", of_file("model", "optimizer")),
    ("12_fvcore/fvcore/model_final.pth", "detectron2", of_file("model", "optimizer")),
    ("13_sb3/sb3_ppo.zip", "stable-baselines3", of_sb3),
    ("13_sb3/sb3_sac.zip", "stable-baselines3", of_sb3),
    ("16_timm/last.pth.tar", "timm", of_file("state_dict", "optimizer")),
    ("17_mmengine/run", "mmengine", lambda _: (6, 3, [(1, 6, 18)])),  # as counted where mmengine can be imported
    ("14_lowbit_optim/bnb_AdamW8bit.pt", "plain", of_file(None, "")),
    ("14_lowbit_optim/bnb_AdEMAMix8bit.pt", "plain", of_file(None, "")),
]


@pytest.mark.parametrize(("path", "convention", "count"), CASES, ids=[case[0] for case in CASES])
def test_a_sample_has_what_torch_counts_in_it(path: str, convention: str, count: Callable[[str], Counts]) -> None:
    found = explained(path)
    assert found.convention == convention
    assert counts(found) == count(path)
    assert len(found.namings) == len(found.state.optimizers)


NAMED = {
    "01_torch_save/zip_full.pt": (NameSource.PARAM_NAMES, True),
    "04_hf_trainer/checkpoint-2": (NameSource.NONE, False),
    "05_hf_trainer_peft/checkpoint-2": (NameSource.MODEL_ORDER, False),
    "06_accelerate_bin/checkpoint_1": (NameSource.MODEL_ORDER, False),
    "06_accelerate_safe/checkpoint_1": (NameSource.NONE, False),
    "07_lightning/pl.ckpt": (NameSource.MODEL_ORDER, False),
    "07_lightning/pl_two_opts.ckpt": (NameSource.MODEL_ORDER, False),
    "09_fsdp_ddp/fsdp2_full.pt": (NameSource.KEYS, True),
    "09_fsdp_ddp/fsdp1_uop1_full.pt": (NameSource.KEYS, True),
    "09_fsdp_ddp/zero_redundancy_ddp.pt": (NameSource.MODEL_ORDER, False),
    "11_nanogpt/ckpt.pt": (NameSource.MODEL_ORDER, False),
    "12_fvcore/fvcore/model_final.pth": (NameSource.MODEL_ORDER, False),
    "13_sb3/sb3_sac.zip": (NameSource.MODEL_ORDER, False),
    "14_lowbit_optim/bnb_AdamW8bit.pt": (NameSource.NONE, False),
}


@pytest.mark.parametrize("path", NAMED)
def test_a_sample_says_how_its_names_were_found(path: str) -> None:
    for naming in explained(path).namings:
        assert (naming.source, naming.certain) == NAMED[path]
        assert naming.reason


MEMBERS = {
    "07_lightning/pl_two_opts.ckpt": [[("net.0.weight", "net.0.bias")], [("net.1.weight", "net.1.bias")]],
    "11_nanogpt/ckpt.pt": [[("0.weight", "1.weight"), ("0.bias", "1.bias")]],
    "12_fvcore/fvcore/model_final.pth": [[("0.weight", "0.bias", "1.weight", "1.bias")]],
    "09_fsdp_ddp/zero_redundancy_ddp.pt": [
        [("emb.weight", "fc.weight", "fc.bias", "frozen.weight", "frozen.bias", "head.weight")]
    ],
    "05_hf_trainer_peft/checkpoint-2": [
        [
            (
                "base_model.model.transformer.wpe.weight",
                "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight",
                "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight",
            ),
            (),
        ]
    ],
}


@pytest.mark.parametrize("path", MEMBERS)
def test_a_samples_groups_have_their_members_by_name(path: str) -> None:
    found = [[group.members for group in one.groups] for one in explained(path).state.optimizers]
    assert found == MEMBERS[path]


def test_each_part_of_an_actor_critic_has_its_own_optimizer() -> None:
    state = explained("13_sb3/sb3_sac.zip").state
    owners = [
        {name.split(".")[0] for group in one.groups for name in group.members if name} for one in state.optimizers
    ]
    assert owners == [{"actor"}, {"critic"}, {"log_ent_coef"}]


RECORDED = {
    "01_torch_save/zip_full.pt": (3, "global_step 3"),
    "04_hf_trainer/checkpoint-4": (4, "global_step 4 (trainer_state.json)"),
    "06_accelerate_bin/checkpoint_1": (None, ""),
    "07_lightning/pl_two_opts.ckpt": (2, "global_step 4"),
    "07_lightning/pl.ckpt": (2, "global_step 2"),
    "11_nanogpt/ckpt.pt": (2000, "iter_num 2000"),
    "12_fvcore/fvcore/model_0000001.pth": (2, "iteration 1, from 0"),
    "16_timm/last.pth.tar": (None, "epoch 1, from 0"),
    "17_mmengine/run": (6, "meta.iter 6"),
}


@pytest.mark.parametrize("path", RECORDED)
def test_a_sample_tells_its_step(path: str) -> None:
    found = explained(path)
    assert (found.state.step, found.recorded_step) == RECORDED[path]


GUESSED = {
    "01_torch_save/zip_full.pt": ["AdamW"],
    "01_torch_save/zip_lbfgs.pt": ["LBFGS"],
    "07_lightning/pl_two_opts.ckpt": ["Adam", "SGD"],
    "12_fvcore/fvcore/model_final.pth": ["SGD"],
    "14_lowbit_optim/bnb_AdEMAMix8bit.pt": ["bitsandbytes.AdEMAMix"],
    "14_lowbit_optim/bnb_AdamW8bit.pt": ["bitsandbytes.Adam or bitsandbytes.AdamW"],
    "14_lowbit_optim/ao_AdamW8bit.pt": ["torchao.Adam8bit or torchao.AdamW8bit"],
    "14_lowbit_optim/ao_AdamW4bit.pt": ["torchao.Adam4bit or torchao.AdamW4bit"],
    "14_lowbit_optim/ao_AdamWFp8.pt": ["torchao.AdamFp8 or torchao.AdamWFp8"],
}


@pytest.mark.parametrize("path", GUESSED)
def test_a_samples_optimizers_are_guessed_from_what_they_keep(path: str) -> None:
    guesses = [guess(one) for one in explained(path).state.optimizers]
    assert [" or ".join(one.names) for one in guesses] == GUESSED[path]
    assert all(one.certain == (len(one.names) == 1) for one in guesses)


def test_the_same_training_in_two_formats_gives_the_same_entries() -> None:
    left, right = explained("01_torch_save/zip_full.pt").state, explained("01_torch_save/zip_proto5.pt").state
    assert set(left.rng) == set(right.rng) == {"python", "numpy", "torch"}
    for section, entries in left.sections.items():
        assert {path: one.value for path, one in entries.items()} == {
            path: one.value for path, one in right.sections[section].items()
        }


def test_a_generator_of_a_sample_is_as_torch_and_numpy_read_it() -> None:
    root = loaded("04_hf_trainer/checkpoint-2/rng_state.pth")
    rng = explained("04_hf_trainer/checkpoint-2").state.rng
    assert rng["torch"].ref is not None
    assert bytes(rng["torch"].ref.fetch()) == root["cpu"].numpy().tobytes()
    assert rng["python"].value == repr(repr(root["python"]))
    kind, keys, *rest = root["numpy"]
    assert rng["numpy"].value == f"('{kind}', bytes:{keys.tobytes().hex()}, {', '.join(map(repr, rest))})"


def test_wrappers_and_ties_of_samples_are_told() -> None:
    assert explained("01_torch_save/zip_compile_prefix.pt").stripped == ("_orig_mod.",)
    assert explained("09_fsdp_ddp/zero_redundancy_ddp.pt").stripped == ("module.",)
    tied = explained("02_torch_edge/tied.pt").state.parameters
    root = loaded("02_torch_edge/tied.pt")
    assert root["a"].data_ptr() == root["b"].data_ptr()
    assert {name: one.aliases for name, one in tied.items()} == {"a": ("b",), "c": ()}


def test_a_pickled_module_is_named_as_its_state_dict_would_be() -> None:
    state = explained("01_torch_save/zip_whole_module.pt").state
    whole = explained("01_torch_save/zip_full.pt").state
    assert set(state.parameters) == set(whole.parameters)
    assert set(state.buffers) == set(whole.buffers)
    assert all(one.requires_grad is not None for one in state.parameters.values())


def test_an_adapter_says_that_its_base_is_absent() -> None:
    (note,) = explained("05_hf_trainer_peft/checkpoint-2").notes
    assert "base model" in note


def test_the_trainers_arguments_and_configuration_are_kept_beside() -> None:
    found = explained("04_hf_trainer/checkpoint-2")
    config = json.loads((CHECKPOINTS / "04_hf_trainer/checkpoint-2/config.json").read_text())
    extra = found.state.sections["extra"]
    assert extra["config.json.n_layer"].value == config["n_layer"]
    assert any(path.startswith("training_args.bin") for path in extra)
    assert found.unrecognised == ()


def test_every_sample_that_can_be_read_is_explained() -> None:
    paths = [path for path in CHECKPOINTS.glob("*/*") if path.parent.name not in ("02_torch_edge", "03_reject")]
    read = [path for path in paths if path.is_dir() or path.suffix in (".pt", ".pth", ".ckpt", ".zip")]
    assert len(read) > 40
    for path in read:
        found = explain(read_raw(path))
        state = found.state
        values = [*state.sections.values(), *(kept for one in state.optimizers for kept in one.state.values())]
        assert all((one.ref is None) == (one.spec is None) for entries in values for one in entries.values())
        assert len(found.namings) == len(state.optimizers)

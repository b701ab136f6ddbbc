"""Folders that are one checkpoint: every file as it is read alone."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import RawTree, tensors_in
from tests.samples import CHECKPOINTS

TRAINER = CHECKPOINTS / "04_hf_trainer/checkpoint-2"
ZERO = CHECKPOINTS / "10_deepspeed/z2_bf16/global_step2"
FOLDERS = {
    "04_hf_trainer/checkpoint-2": 8,
    "04_hf_trainer/checkpoint-4": 8,
    "05_hf_trainer_peft/checkpoint-2": 7,
    "06_accelerate_bin/checkpoint_1": 5,
    "06_accelerate_safe/checkpoint_1": 5,
    "10_deepspeed/z0_fp32/global_step2": 1,
    "10_deepspeed/z1_bf16/global_step2": 3,
    "10_deepspeed/z2_bf16/global_step2": 3,
    "10_deepspeed/z3_bf16/global_step2": 4,
    "10_deepspeed/universal_z1": 20,
}


@pytest.mark.parametrize(("name", "count"), FOLDERS.items(), ids=FOLDERS)
def test_every_file_of_a_sample_is_read_as_it_is_alone(name: str, count: int) -> None:
    folder = CHECKPOINTS / name
    tree = read_raw(folder)
    assert tree.container == "folder"
    assert tree.path == folder
    assert len(tree.root) == count
    assert list(tree.root) == sorted(tree.root)
    for label, value in tree.root.items():
        alone = read_raw(folder / label)
        assert tree.files[label].container == alone.container
        pairs = list(zip(tensors_in(value), tensors_in(alone.root), strict=True))
        assert all(one.spec == other.spec and one.fetch() == other.fetch() for one, other in pairs)
        assert {one.storage.file for one, _ in pairs if one.storage} <= {label}
    assert tree.nbytes == sum((folder / label).stat().st_size for label in tree.root)
    assert not tree.defects
    assert len(tree.members) == sum(len(one.members) for one in tree.files.values())


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRAINER, tmp_path / "checkpoint-2"))


def test_what_is_no_state_is_left_out_and_named(trainer: Path) -> None:
    texts = ("README.md", "run.log", "plot.png", "modeling.py", "events.out.tfevents.1")
    for name in (*texts, "tokenizer.json", "vocab.json"):
        (trainer / name).write_text("{}")
    (trainer / ".cache").mkdir()
    (trainer / ".cache/model.pt").write_bytes(b"PK\3\4")
    (trainer / "metrics.json").write_text('{"step": 1}\n{"step": 2}\n')
    (trainer / "dataset.json").write_text(f"[{'1, ' * 3_000_000} 1]")
    (trainer / "data.bin").write_bytes(os.urandom(100))
    tree = read_raw(trainer)
    assert list(tree.root) == list(read_raw(TRAINER).root)
    told = [
        "README.md",
        "data.bin",
        "dataset.json",
        "events.out.tfevents.1",
        "metrics.json",
        "modeling.py",
        "plot.png",
        "run.log",
    ]
    assert tree.facts["other_files"] == [*told, "tokenizer.json", "vocab.json"]


def test_a_file_is_taken_in_by_its_content_where_its_name_says_nothing(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "weights.model_state")
    torch.save({"a": torch.ones(2)}, tmp_path / "noname", _use_new_zipfile_serialization=False)
    (tmp_path / "other").write_text("PKI is a text")
    tree = read_raw(tmp_path)
    assert {label: one.container for label, one in tree.files.items()} == {
        "noname": "torch-legacy",
        "weights.model_state": "torch-zip",
    }


def test_shards_in_a_folder_are_one_entry(trainer: Path) -> None:
    (trainer / "model.safetensors").unlink()
    for path in (CHECKPOINTS / "15_safetensors_sharded/sharded").glob("model*"):
        shutil.copy(path, trainer)
    tree = read_raw(trainer)
    assert tree.files["model.safetensors"].container == "safetensors-sharded"
    assert not any("-of-" in label for label in tree.root)


def test_a_store_in_a_folder_is_one_entry(trainer: Path) -> None:
    shutil.copytree("tests/store/kept/v1", trainer / "state")
    tree = read_raw(trainer)
    assert tree.files["state"].container == "store"
    assert not any(label.startswith("state/") for label in tree.root)
    assert all(member.verify() is None for member in tree.members)


def test_the_other_checkpoints_of_a_run_are_left_out_beside_a_final_model(tmp_path: Path) -> None:
    shutil.copytree(TRAINER, tmp_path / "checkpoint-2")
    shutil.copytree(TRAINER, tmp_path / "tmp-checkpoint-4")
    for name in ("model.safetensors", "config.json", "training_args.bin"):
        shutil.copy(TRAINER / name, tmp_path)
    tree = read_raw(tmp_path)
    assert list(tree.root) == ["config.json", "model.safetensors", "training_args.bin"]
    assert tree.facts["folders_left_out"] == ["checkpoint-2", "tmp-checkpoint-4"]
    assert tree.facts["temporary_folders"] == ["tmp-checkpoint-4"]


def test_the_tag_of_deepspeed_belongs_to_the_trainers_checkpoint(trainer: Path) -> None:
    (trainer / "optimizer.pt").unlink()
    shutil.copytree(ZERO, trainer / "global_step2")
    shutil.copytree(ZERO, trainer / "global_step1")
    (trainer / "latest").write_text("global_step2")
    tree = read_raw(trainer)
    assert "global_step2/mp_rank_00_model_states.pt" in tree.root
    assert not any(label.startswith("global_step1") for label in tree.root)


def test_a_whole_file_that_is_no_checkpoint_is_no_damage(trainer: Path) -> None:
    shutil.copy(CHECKPOINTS / "03_reject/torchscript.pt", trainer / "traced.pt")
    tree: RawTree = read_raw(trainer)
    assert "traced.pt" not in tree.root
    assert "TorchScript" in tree.facts["refused"]["traced.pt"]


@pytest.mark.parametrize("names", [(), ("README.md", "train.py"), ("tokenizer.json",)])
def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match="no checkpoint is in this folder") as caught:
        read_raw(tmp_path)
    assert not isinstance(caught.value, DamagedCheckpointError)


def test_a_folder_that_changes_while_it_is_read_is_told(trainer: Path) -> None:
    tree = read_raw(trainer)
    tree.check_unchanged()
    with (trainer / "optimizer.pt").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DamagedCheckpointError, match="changed while it was read"):
        tree.check_unchanged()


def test_files_in_sub_folders_keep_their_paths(tmp_path: Path) -> None:
    for rank in range(2):
        folder = tmp_path / "iter_0000010" / f"mp_rank_0{rank}"
        folder.mkdir(parents=True)
        torch.save({"model": {"w": torch.full((2,), float(rank))}}, folder / "model_optim_rng.pt")
    tree = read_raw(tmp_path / "iter_0000010")
    assert list(tree.root) == ["mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"]
    assert json.dumps(sorted(tree.files)) == json.dumps(sorted(tree.root))


def test_distributed_parts_of_a_folder_are_one_entry_each(trainer: Path) -> None:
    for name in ("model.safetensors", "optimizer.pt"):
        (trainer / name).unlink()
    for source, name in (("dcp_plain", "pytorch_model_fsdp_0"), ("dcp_raw_optim", "optimizer_0")):
        shutil.copytree(CHECKPOINTS / "08_dcp" / source, trainer / name)
    tree = read_raw(trainer)
    assert {label: one.container for label, one in tree.files.items() if label.endswith("_0")} == {
        "optimizer_0": "dcp",
        "pytorch_model_fsdp_0": "dcp",
    }
    alone = read_raw(CHECKPOINTS / "08_dcp/dcp_plain")
    assert list(tree.root["pytorch_model_fsdp_0"]) == list(alone.root)
    places = {one.file.partition("/")[0] for one in tree.members if one.file.endswith(".distcp")}
    assert places == {"optimizer_0", "pytorch_model_fsdp_0"}
    (trainer / "optimizer_0/.metadata").unlink()
    with pytest.raises(DamagedCheckpointError, match=r"optimizer_0.*\.metadata"):
        read_raw(trainer)


def cache_of(tmp_path: Path) -> Path:
    """A snapshot as Hugging Face's cache has it: links to blobs named by digest."""
    snapshot = tmp_path / "models--a--b/snapshots/0123"
    blobs = tmp_path / "models--a--b/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in ("model.safetensors", "config.json"):
        shutil.copy(TRAINER / name, blobs / f"{len(name):064x}")
        (snapshot / name).symlink_to(f"../../blobs/{len(name):064x}")
    return snapshot


def test_the_links_of_hugging_faces_cache_are_part_of_a_folder(tmp_path: Path) -> None:
    tree = read_raw(cache_of(tmp_path))
    assert list(tree.root) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("target", ["../../blobs/../secret", "../../secret", "../../../blobs/a", "../../blobs/a/b"])
def test_other_links_out_of_a_snapshot_are_not_followed(tmp_path: Path, target: str) -> None:
    snapshot = cache_of(tmp_path)
    (snapshot / "model.safetensors").unlink()
    (snapshot / "model.safetensors").symlink_to(target)
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        read_raw(snapshot)


def test_many_folders_of_their_own_kind_are_refused(tmp_path: Path) -> None:
    for number in range(101):
        (tmp_path / f"part{number}").mkdir()
        (tmp_path / f"part{number}/.metadata").write_bytes(b"")
    torch.save({}, tmp_path / "optimizer.pt")
    with pytest.raises(CheckpointError, match="101 folders that are checkpoints"):
        read_raw(tmp_path)

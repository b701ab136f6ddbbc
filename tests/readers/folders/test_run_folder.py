"""Folders of several checkpoints: the tracked one is read, else the newest whole one, and the tree says which."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw
from tests.samples import CHECKPOINTS

CHOSEN = {
    "04_hf_trainer": ("checkpoint-4", "the newest"),
    "05_hf_trainer_peft": ("checkpoint-2", "the newest"),
    "06_accelerate_bin": ("checkpoint_1", "the newest"),
    "10_deepspeed": ("universal_z1", "named by latest_universal"),
    "10_deepspeed/z0_fp32": ("global_step2", "named by latest"),
    "10_deepspeed/z3_bf16": ("global_step2", "named by latest"),
    "11_nanogpt": ("ckpt.pt", "the only one"),
    "12_fvcore/fvcore": ("model_final.pth", "named by last_checkpoint"),
    "15_safetensors_sharded": ("sharded", "the only one"),
}


@pytest.mark.parametrize(("folder", "chosen"), CHOSEN.items(), ids=CHOSEN)
def test_every_sample_of_a_run_gives_the_right_checkpoint(folder: str, chosen: tuple[str, str]) -> None:
    name, reason = chosen
    tree = read_raw(CHECKPOINTS / folder)
    assert tree.path == CHECKPOINTS / folder / name
    assert tree.facts["chosen"] == f"{name} in {CHECKPOINTS / folder}: {reason}"
    alone = read_raw(CHECKPOINTS / folder / name)
    assert tree.container == alone.container
    assert list(tree.root) == list(alone.root)


def test_a_folder_above_the_only_run_gives_that_runs_checkpoint() -> None:
    tree = read_raw(CHECKPOINTS / "12_fvcore")
    assert tree.path == CHECKPOINTS / "12_fvcore/fvcore/model_final.pth"


@pytest.mark.parametrize("folder", ["02_torch_edge", "07_lightning", "13_sb3", "14_lowbit_optim"])
def test_several_loose_files_are_named_and_none_is_taken(folder: str) -> None:
    with pytest.raises(CheckpointError, match="name one of them: ") as caught:
        read_raw(CHECKPOINTS / folder)
    assert not isinstance(caught.value, DamagedCheckpointError)
    assert all(path.name in str(caught.value) for path in (CHECKPOINTS / folder).iterdir())


def test_several_folders_of_checkpoints_are_named_and_none_is_taken() -> None:
    with pytest.raises(CheckpointError, match=r"\d+ folders of checkpoints: name one of them: 01_torch_save, 02_torch"):
        read_raw(CHECKPOINTS)


def saved(folder: Path, step: float = 0.0, name: str = "model.pt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"w": torch.tensor([float(step)])}, folder / name)
    return folder


def step_of(path: Path) -> float:
    root = read_raw(path).root
    tensor = root.get("w") or next(iter(root.values()))["w"]
    return float(struct.unpack("<f", tensor.fetch())[0])


FAMILIES = [
    "checkpoint-{}",
    "checkpoint_{}",
    "global_step{}",
    "iter_{:07d}",
    "step-{}",
    "epoch_{}",
    "step_{}",
    "ckpt-{}",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_newest_is_told_by_its_number_not_by_its_name(tmp_path: Path, family: str) -> None:
    for number in (2, 100, 30):
        saved(tmp_path / family.format(number), number)
    assert step_of(tmp_path) == 100


def test_a_newest_save_that_did_not_end_is_skipped_and_named(tmp_path: Path) -> None:
    run = Path(shutil.copytree(CHECKPOINTS / "04_hf_trainer", tmp_path / "run"))
    (run / "checkpoint-4/trainer_state.json").unlink()
    (run / "checkpoint-9").mkdir()
    (run / "tmp-checkpoint-12").mkdir()
    tree = read_raw(run)
    assert tree.path == run / "checkpoint-2"
    assert tree.facts["chosen"].endswith("the newest that is whole")
    assert tree.facts["skipped"] == (
        "checkpoint-9: it is empty",
        "checkpoint-4: trainer_state.json is not there, which the Trainer writes last: the save was cut short",
    )
    assert tree.facts["temporary_folders"] == ["tmp-checkpoint-12"]


def test_the_trainers_state_beside_its_checkpoints_is_not_one_of_them(tmp_path: Path) -> None:
    run = Path(shutil.copytree(CHECKPOINTS / "04_hf_trainer", tmp_path / "run"))
    shutil.copy(run / "checkpoint-4/trainer_state.json", run)
    assert read_raw(run).path == run / "checkpoint-4"


def test_a_distributed_save_without_its_metadata_is_skipped(tmp_path: Path) -> None:
    saved(tmp_path / "step-1", 1)
    (tmp_path / "step-2").mkdir()
    (tmp_path / "step-2/__0_0.distcp").write_bytes(b"PK\3\4")
    tree = read_raw(tmp_path)
    assert tree.path == tmp_path / "step-1/model.pt"
    assert tree.facts["skipped"] == ("step-2: .metadata is not there, which is written last",)


def test_where_none_is_whole_the_newest_is_read_and_its_damage_told(tmp_path: Path) -> None:
    run = Path(shutil.copytree(CHECKPOINTS / "04_hf_trainer", tmp_path / "run"))
    for name in ("checkpoint-2", "checkpoint-4"):
        (run / name / "trainer_state.json").unlink()
    with pytest.raises(DamagedCheckpointError, match=r"checkpoint-4.*trainer_state\.json is not there"):
        read_raw(run)


def test_two_kinds_of_names_are_ambiguous(tmp_path: Path) -> None:
    saved(tmp_path / "epoch_1")
    saved(tmp_path / "step-500")
    with pytest.raises(CheckpointError, match="several kinds of names: name one of them: epoch_1, step-500"):
        read_raw(tmp_path)


TRACKED: dict[str, tuple[str, str, str]] = {
    "deepspeed": ("latest", "global_step2", "global_step2"),
    "deepspeed with a newline": ("latest", "global_step2\n", "global_step2"),
    "megatron": ("latest_checkpointed_iteration.txt", "2", "iter_0000002"),
    "megatron's release": ("latest_checkpointed_iteration.txt", "release", "release"),
    "fvcore": ("last_checkpoint", "model_0000002.pth", "model_0000002.pth"),
    "mmengine": ("last_checkpoint", "/home/someone/work_dirs/run/epoch_2.pth", "epoch_2.pth"),
    "mmengine on windows": ("last_checkpoint", "C:\\work\\run\\epoch_2.pth", "epoch_2.pth"),
}


@pytest.mark.parametrize(("tracker", "written", "name"), TRACKED.values(), ids=TRACKED)
def test_a_tracker_wins_over_newer_numbers(tmp_path: Path, tracker: str, written: str, name: str) -> None:
    (tmp_path / tracker).write_text(written)
    if name.endswith(".pth"):
        saved(tmp_path, 2, name)
        saved(tmp_path, 3, "epoch_3.pth")
    else:
        saved(tmp_path / name, 2)
        saved(tmp_path / "global_step3", 3)
    assert step_of(tmp_path) == 2
    (tmp_path / name).rename(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    with pytest.raises(DamagedCheckpointError, match=f"{tracker}: names '{name}', which is not there") as caught:
        read_raw(tmp_path)
    assert caught.value.flaw == Flaw.INCOMPLETE


HOSTILE = {
    "above": ("latest", "../secret", "not inside the folder"),
    "absolute": ("latest", "/etc", "not inside the folder"),
    "above within": ("latest", "a/../../secret", "not inside the folder"),
    "itself": ("latest", ".", "not inside the folder"),
    "nothing": ("latest", "", "names no checkpoint"),
    "control characters": ("latest", "a\x1b[31m", "names no checkpoint"),
    "two lines": ("latest", "a\nb", "names no checkpoint"),
    "binary": ("latest", "\0\1\2", "names no checkpoint"),
    "too long a name": ("latest", "a" * 4000, "which is not there"),
    "no number": ("latest_checkpointed_iteration.txt", "many", "names no checkpoint"),
    "a negative number": ("latest_checkpointed_iteration.txt", "-2", "names no checkpoint"),
    "a number without end": ("latest_checkpointed_iteration.txt", "9" * 4000, "names no checkpoint"),
    "other digits": ("latest_checkpointed_iteration.txt", "\u0662", "iter_0000002"),
    "the last of the way up": ("last_checkpoint", "/a/b/..", "not inside the folder"),
}


@pytest.mark.parametrize(("tracker", "written", "said"), HOSTILE.values(), ids=HOSTILE)
def test_a_tracker_never_leads_out_of_its_folder(tmp_path: Path, tracker: str, written: str, said: str) -> None:
    run = tmp_path / "run"
    saved(tmp_path / "secret")
    saved(run / "step-1")
    (run / tracker).write_text(written)
    with pytest.raises(CheckpointError, match=said) as caught:
        read_raw(run)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def _to_itself(run: Path) -> None:
    (run / "again").symlink_to(".")
    (run / "latest").write_text("again")


def _out(run: Path) -> None:
    saved(run.parent / "secret")
    (run / "step-9").symlink_to("../secret")


def _tracker_out(run: Path) -> None:
    (run.parent / "tag").write_text("step-1")
    (run / "latest").symlink_to("../tag")


def _tracker_pipe(run: Path) -> None:
    os.mkfifo(run / "latest")


def _circle(run: Path) -> None:
    (run / "step-5").symlink_to("step-6")
    (run / "step-6").symlink_to("step-5")
    (run / "latest").write_text("step-5")


LINKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a tag that is the folder itself": (_to_itself, "is a link to the folder it lies in"),
    "a tracker that is a link out": (_tracker_out, "leads out of the folder"),
    "a tracker that is a pipe": (_tracker_pipe, "no regular file"),
    "a tag that is a circle": (_circle, "which is not there|cannot be resolved"),
}


@pytest.mark.parametrize(("make", "said"), LINKS.values(), ids=LINKS)
def test_links_and_pipes_end_in_one_line(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    run = tmp_path / "run"
    saved(run / "step-1")
    make(run)
    with pytest.raises(CheckpointError, match=said):
        read_raw(run)


def test_a_numbered_link_out_of_the_folder_is_not_taken(tmp_path: Path) -> None:
    run = tmp_path / "run"
    saved(run / "step-1", 1)
    _out(run)
    tree = read_raw(run)
    assert tree.path == run / "step-1/model.pt"
    assert any("leads out of the folder" in one for one in tree.facts["skipped"])


def test_a_link_to_the_newest_is_not_counted_twice(tmp_path: Path) -> None:
    saved(tmp_path / "step-1", 1)
    (tmp_path / "last").symlink_to("step-1")
    assert step_of(tmp_path) == 1


PIECES = [
    ("model.pt", "optimizer.pt"),
    ("policy.pth", "policy.optimizer.pth"),
    ("model.pt", "ema.pt"),
    ("a.pt", "scheduler.pt"),
]


@pytest.mark.parametrize("names", PIECES, ids="+".join)
def test_files_that_complete_each_other_are_one_checkpoint(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        saved(tmp_path, 1, name)
    tree = read_raw(tmp_path)
    assert tree.container == "folder"
    assert list(tree.root) == sorted(names)


def test_one_file_beside_its_configuration_is_a_folder(tmp_path: Path) -> None:
    saved(tmp_path, 1, "model.pt")
    (tmp_path / "config.json").write_text("{}")
    assert list(read_raw(tmp_path).root) == ["config.json", "model.pt"]


def test_checkpoints_in_a_folder_of_that_name_are_found(tmp_path: Path) -> None:
    (tmp_path / "hparams.yaml").write_text("lr: 1\n")
    saved(tmp_path / "checkpoints", 7, "epoch=1-step=7.ckpt")
    assert step_of(tmp_path) == 7

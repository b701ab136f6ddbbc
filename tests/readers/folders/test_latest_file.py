"""A run's folder of loose files: the one that a trainer calls its last is read, and a tracker goes before it."""

from pathlib import Path

import pytest
import torch

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw

RUNS = {
    "fairseq": ("checkpoint_last.pt", "checkpoint_best.pt", "checkpoint1.pt", "checkpoint_2_500.pt"),
    "timm": ("last.pth.tar", "model_best.pth.tar", "checkpoint-0.pth.tar", "recovery-1-7.pth.tar"),
    "open_clip": ("epoch_latest.pt", "epoch_1.pt", "epoch_2.pt"),
    "ultralytics": ("last.pt", "best.pt", "epoch0.pt"),
    "Lightning": ("last.ckpt", "epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt"),
}


def run(folder: Path, *names: str) -> Path:
    for place, name in enumerate(names):
        torch.save({"state_dict": {"weight": torch.full((2,), float(place))}, "epoch": place}, folder / name)
    return folder


@pytest.mark.parametrize("trainer", RUNS)
def test_the_file_that_a_trainer_calls_its_last_is_read(trainer: str, tmp_path: Path) -> None:
    last, *others = RUNS[trainer]
    tree = read_raw(run(tmp_path, *others, last))
    assert (tree.path, tree.facts["reason"]) == (tmp_path / last, "the newest by its name")
    assert tree.root["epoch"] == tree.facts["of"] - 1 == len(others)


def test_a_last_file_alone_is_the_only_one(tmp_path: Path) -> None:
    assert read_raw(run(tmp_path, "last.pt")).facts["reason"] == "the only one"


@pytest.mark.parametrize(
    "written", ["iter_3.pth", "/runs/tiny/iter_3.pth", "C:\\runs\\tiny\\iter_3.pth", "iter_3.pth\n"]
)
def test_a_tracker_goes_before_a_name_wherever_it_was_written(written: str, tmp_path: Path) -> None:
    run(tmp_path, "iter_3.pth", "best_acc_iter_2.pth", "last.pt")
    (tmp_path / "last_checkpoint").write_text(written, newline="")
    tree = read_raw(tmp_path)
    assert (tree.path.name, tree.facts["reason"]) == ("iter_3.pth", "named by last_checkpoint")


@pytest.mark.parametrize("written", ["model_final.pth", "/runs/tiny/model_final.pth"])
def test_a_tracker_of_a_file_that_is_not_there_is_half_a_save(written: str, tmp_path: Path) -> None:
    run(tmp_path, "model_0000002.pth", "last.pt")
    (tmp_path / "last_checkpoint").write_text(written)
    with pytest.raises(DamagedCheckpointError, match=r"names 'model_final\.pth', which is not there") as caught:
        read_raw(tmp_path)
    assert caught.value.flaw is Flaw.INCOMPLETE


def test_several_files_of_which_none_is_the_last_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"name one of them: best\.pt, first\.pt"):
        read_raw(run(tmp_path, "best.pt", "first.pt"))

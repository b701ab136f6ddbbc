"""A folder that holds several checkpoints is refused with their names; the parts of one are read as one."""

from pathlib import Path

import pytest
import torch

import ckptcheck
from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from tests.readers.dcp_folders import save


def whole(path: Path, step: int = 1) -> Path:
    """A file with a model and its optimizer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
    return path


def distributed(folder: Path) -> Path:
    return save({"model": {"w": torch.ones(2)}, "optim": {"state": {"w": torch.ones(2)}}}, folder)


def files_beside_sub_folders(folder: Path) -> None:
    whole(folder / "ema.pt")
    whole(folder / "mid" / "step_10.pt")


def files_of_two_kinds(folder: Path) -> None:
    whole(folder / "one.pt")
    whole(folder / "two.pt")
    whole(folder / "rank.bin")


def distributed_ones(folder: Path) -> None:
    for name in ("first", "second"):
        distributed(folder / name)
    whole(folder / "first_full.pt")


SEVERAL = {
    "files beside sub-folders": (files_beside_sub_folders, r"\(ema.pt, mid\)"),
    "distributed ones": (distributed_ones, r"\(first, first_full.pt, second\)"),
    "files of several kinds": (files_of_two_kinds, r"\(one.pt, two.pt\)"),
}


@pytest.mark.parametrize(("build", "names"), SEVERAL.values(), ids=SEVERAL)
def test_several_checkpoints_are_refused_by_their_names(tmp_path: Path, build, names: str) -> None:
    build(tmp_path)
    for verb in (ckptcheck.inspect, ckptcheck.check):
        with pytest.raises(CheckpointError, match=f"holds several checkpoints {names}: name one of them") as caught:
            verb(tmp_path)
        assert not isinstance(caught.value, DamagedCheckpointError)
        assert str(caught.value).startswith(f"{tmp_path}: ")


def test_the_names_of_many_are_cut(tmp_path: Path) -> None:
    for number in range(15):
        whole(tmp_path / f"run{number:02d}.pt")
    (tmp_path / "weights.bin").write_bytes((tmp_path / "run00.pt").read_bytes())
    with pytest.raises(CheckpointError, match=r"run11.pt and 4 more\)"):
        ckptcheck.inspect(tmp_path)


def ranks(folder: Path) -> None:
    for rank in range(2):
        whole(folder / f"state_rank{rank}.pt")


def tensor_parallel(folder: Path) -> None:
    for rank in range(2):
        whole(folder / f"mp_rank_{rank:02d}" / "model_optim_rng.pt")


def trained_together(folder: Path) -> None:
    whole(folder / "actor" / "state.pt")
    whole(folder / "critic" / "state.pt")
    torch.save({"step": 1}, folder / "progress.pkl")


def weights_and_optimizer(folder: Path) -> None:
    state = torch.load(whole(folder / "model.bin"))
    torch.save(state["model"], folder / "model.bin")
    torch.save({"optimizer": state["optimizer"]}, folder / "optimizer.bin")
    torch.save(state["model"], folder / "ema.bin")


def distributed_parts(folder: Path) -> None:
    save({"model": {"w": torch.ones(2)}}, folder / "pytorch_model_fsdp_0")
    save({"optimizer": {"state": {"w": torch.ones(2)}}}, folder / "optimizer_0")
    torch.save({"step": 1}, folder / "random_states_0.pkl")


def one_beside_its_average(folder: Path) -> None:
    state = torch.load(whole(folder / "last.pt"))
    torch.save({"model": state["model"], "optimizer": {}}, folder / "ema.pt")


ONE = {
    "a file of each rank": (ranks, 2),
    "a folder of each rank": (tensor_parallel, 2),
    "two networks of one training": (trained_together, 3),
    "parts by name": (weights_and_optimizer, 3),
    "distributed parts": (distributed_parts, 3),
    "one and its average": (one_beside_its_average, 2),
}


@pytest.mark.parametrize(("build", "count"), ONE.values(), ids=ONE)
def test_the_parts_of_one_checkpoint_are_read_as_one(tmp_path: Path, build, count: int) -> None:
    build(tmp_path)
    assert len(read_raw(tmp_path).root) == count

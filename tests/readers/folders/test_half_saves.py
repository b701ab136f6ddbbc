"""What a save that died, or a copy, left of a folder is told; what is whole raises no alarm."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw
from tests.samples import CHECKPOINTS

TRAINER = CHECKPOINTS / "04_hf_trainer/checkpoint-2"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
WEIGHTS = "model.safetensors"
ZERO = CHECKPOINTS / "10_deepspeed/z2_bf16/global_step2"


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRAINER, tmp_path / "checkpoint-2"))


@pytest.fixture
def zero(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ZERO, tmp_path / "global_step2"))


def _drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _cut(name: str, length: int = -1) -> Callable[[Path], None]:
    return lambda folder: _write(folder / name, (folder / name).read_bytes()[:length])


def _as(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: _write(folder / name, content)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _first_byte(folder: Path) -> None:
    content = (folder / "optimizer.pt").read_bytes()
    _write(folder / "optimizer.pt", b"Q" + content[1:])


def _ranks(*ranks: int) -> Callable[[Path], None]:
    return lambda folder: [
        shutil.copy(folder / "rng_state.pth", folder / f"rng_state_{one}.pth") for one in ranks
    ].clear()


def _rank_gap(folder: Path) -> None:
    (folder / "rng_state.pth").rename(folder / "rng_state_0.pth")
    shutil.copy(folder / "rng_state_0.pth", folder / "rng_state_2.pth")


def _dangling(folder: Path) -> None:
    (folder / "optimizer.pt").unlink()
    (folder / "optimizer.pt").symlink_to("not-there.pt")


def _out(folder: Path) -> None:
    (folder / "optimizer.pt").rename(folder.parent / "optimizer.pt")
    (folder / "optimizer.pt").symlink_to("../optimizer.pt")


def _loop(folder: Path) -> None:
    (folder / "optimizer.pt").unlink()
    (folder / "optimizer.pt").symlink_to("again.pt")
    (folder / "again.pt").symlink_to("optimizer.pt")


def _pipe(folder: Path) -> None:
    (folder / "optimizer.pt").unlink()
    os.mkfifo(folder / "optimizer.pt")


def _lost_tag(folder: Path) -> None:
    (folder / "latest").write_text("global_step2")


def _unindexed(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for path in (CHECKPOINTS / "15_safetensors_sharded/sharded").glob("model*.safetensors"):
        shutil.copy(path, folder)


TRAINER_DAMAGE: dict[str, tuple[Callable[[Path], None], Flaw, str, str]] = {
    "no trainer_state.json": (_drop("trainer_state.json"), Flaw.INCOMPLETE, "", "trainer_state.json is not there"),
    "generators with a gap": (_rank_gap, Flaw.INCOMPLETE, "", "rng_state_1 is not there, though rank 2"),
    "generators without the first": (_ranks(1, 2, 3), Flaw.INCOMPLETE, "", "rng_state_0 is not there, though rank 3"),
    "an optimizer cut short": (_cut("optimizer.pt"), Flaw.UNREADABLE, "optimizer.pt", "cut short"),
    "an empty optimizer": (_cut("optimizer.pt", 0), Flaw.UNREADABLE, "optimizer.pt", "is empty"),
    "an optimizer of zeros": (_as("optimizer.pt", bytes(5000)), Flaw.UNREADABLE, "optimizer.pt", "zeros only"),
    "weights of zeros": (_as(WEIGHTS, bytes(5000)), Flaw.UNREADABLE, WEIGHTS, "zeros only"),
    "other weights": (_as(WEIGHTS, b"x" * 50), Flaw.INCOMPLETE, WEIGHTS, "is a text file"),
    "weights not fetched": (_as("optimizer.pt", POINTER), Flaw.INCOMPLETE, "optimizer.pt", "git lfs pull"),
    "a state cut short": (_cut("trainer_state.json", 30), Flaw.UNREADABLE, "trainer_state.json", "no valid JSON"),
    "no JSON at all": (_as("trainer_state.json", b"\xff\0" * 9), Flaw.UNREADABLE, "trainer_state.json", "is no"),
    "a first byte that changed": (_first_byte, Flaw.UNREADABLE, "optimizer.pt", "its first bytes have changed"),
    "a link to nothing": (_dangling, Flaw.UNREADABLE, "optimizer.pt", "No such file"),
    "a link out of the folder": (_out, Flaw.UNREADABLE, "optimizer.pt", "leads out of the folder"),
    "links in a loop": (_loop, Flaw.UNREADABLE, "again.pt", ""),
    "a pipe": (_pipe, Flaw.UNREADABLE, "optimizer.pt", "no regular file"),
    "a tag that is not there": (_lost_tag, Flaw.INCOMPLETE, "latest", "names 'global_step2', which is not there"),
    "shards without their index": (_unindexed, Flaw.INCOMPLETE, "", "model.safetensors.index.json is not there"),
}  # fmt: skip


@pytest.mark.parametrize(("break_it", "flaw", "file", "said"), TRAINER_DAMAGE.values(), ids=TRAINER_DAMAGE)
def test_what_is_wrong_with_a_trainers_folder_is_told(
    trainer: Path, break_it: Callable[[Path], None], flaw: Flaw, file: str, said: str
) -> None:
    break_it(trainer)
    with pytest.raises(DamagedCheckpointError) as caught:
        read_raw(trainer)
    assert caught.value.flaw == flaw
    assert said in str(caught.value)
    assert str(trainer) in str(caught.value)
    tree = read_raw(trainer, strict=False)
    assert (flaw, file, True) in [(one.flaw, one.file, said in one.said) for one in tree.defects]
    assert "config.json" in tree.root


def _latest_of_ones_own(folder: Path) -> None:
    (folder / "trainer_state.json").unlink()
    (folder / "training_args.bin").unlink()
    (folder / "latest").write_text("12")


def _drop_all(*names: str) -> Callable[[Path], None]:
    return lambda folder: [_drop(name)(folder) for name in names].clear()


WHOLE: dict[str, Callable[[Path], None]] = {
    "a final model without optimizer": _drop_all("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"),
    "a saved optimizer of one's own": _drop_all("training_args.bin", "trainer_state.json"),
    "generators of all ranks": _ranks(0, 1, 2),
    "generators of the second node's ranks": _ranks(4, 5, 6, 7),
    "a tracker of one's own": _latest_of_ones_own,
    "a link within the folder": lambda folder: (folder / "last.pt").symlink_to("optimizer.pt"),
}


def test_the_only_shard_of_a_set_needs_no_index(tmp_path: Path) -> None:
    shutil.copy(CHECKPOINTS / "08_dcp/dcp_hf_consol/model-00001-of-00001.safetensors", tmp_path)
    assert not read_raw(tmp_path).defects


@pytest.mark.parametrize("change", WHOLE.values(), ids=WHOLE)
def test_what_is_whole_raises_no_alarm(trainer: Path, change: Callable[[Path], None]) -> None:
    folder = trainer.rename(trainer.parent / "final")
    change(folder)
    assert not read_raw(folder).defects


ZERO_DAMAGE = {
    "a rank's optimizer": ("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "the optim states of rank 1 of 2"),
    "the first rank's optimizer": ("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "the optim states of rank 0 of 2"),
}


@pytest.mark.parametrize(("name", "said"), ZERO_DAMAGE.values(), ids=ZERO_DAMAGE)
def test_a_rank_that_is_missing_from_deepspeed_is_told(zero: Path, name: str, said: str) -> None:
    (zero / name).unlink()
    with pytest.raises(DamagedCheckpointError, match=said) as caught:
        read_raw(zero)
    assert caught.value.flaw == Flaw.INCOMPLETE


def test_all_ranks_that_are_missing_from_deepspeed_are_told(zero: Path) -> None:
    for path in zero.glob("*optim_states.pt"):
        path.unlink()
    said = [one.said for one in read_raw(zero, strict=False).defects]
    assert said == [f"the optim states of rank {rank} of 2 (mp_rank 00) are not there" for rank in (0, 1)]


def test_under_stage_3_the_weights_of_a_rank_are_told(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(CHECKPOINTS / "10_deepspeed/z3_bf16/global_step2", tmp_path / "global_step2"))
    (folder / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
    with pytest.raises(DamagedCheckpointError, match="the model states of rank 1 of 2"):
        read_raw(folder)

"""A part that is not there though what is saved with it is: `check` says so, `inspect` and `diff` read the rest."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import ckptcheck
from ckptcheck.finding import Verdict
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import Flaw
from tests.samples import CHECKPOINTS

TRAINER = CHECKPOINTS / "04_hf_trainer/checkpoint-2"
LORA = CHECKPOINTS / "05_hf_trainer_peft/checkpoint-2"
ACCELERATE = CHECKPOINTS / "06_accelerate_safe/checkpoint_1"

Change = Callable[[Path], object]


def drop(*names: str) -> Change:
    return lambda folder: [(folder / name).unlink() for name in names]


def double(*names: str) -> Change:
    """A second model, optimizer, ... beside the first."""
    return lambda folder: [shutil.copy(folder / name, folder / name.replace(".", "_1.")) for name in names]


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def moved(name: str, to: str) -> Change:
    def change(folder: Path) -> None:
        (folder / to).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).rename(folder / to)

    return change


def written(name: str, value: object) -> Change:
    return lambda folder: torch.save(value, folder / name)


def of_an_old_trainer(folder: Path) -> None:
    path = folder / "trainer_state.json"
    state = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in state.items() if key not in ("save_steps", "eval_steps")}))


LOST: dict[str, tuple[Path, Change, str]] = {
    "the Trainer's weights": (TRAINER, drop("model.safetensors"), "no file holds the weights, which the Trainer"),
    "the Trainer's optimizer": (TRAINER, drop("optimizer.pt"), "optimizer.pt is not there"),
    "the Trainer's schedule": (TRAINER, drop("scheduler.pt"), "scheduler.pt is not there"),
    "the Trainer's generators": (TRAINER, drop("rng_state.pth"), "rng_state.pth is not there"),
    "an adapter": (LORA, drop("adapter_model.safetensors"), "the weights of the adapter"),
    "the generators of all ranks": (ACCELERATE, drop("random_states_0.pkl"), "random_states_0.pkl is not there"),
    "the first model": (
        ACCELERATE,
        both(double("model.safetensors"), drop("model.safetensors")),
        "model.safetensors is not there, though model_1.safetensors is",
    ),
    "the first optimizer": (
        ACCELERATE,
        both(double("optimizer.bin"), drop("optimizer.bin")),
        "optimizer.bin is not there, though optimizer_1.bin is",
    ),
    "the second schedule": (
        ACCELERATE,
        written("scheduler_2.bin", {"last_epoch": 3}),
        "scheduler_1.bin is not there, though scheduler_2.bin is",
    ),
    "Accelerate's only model": (
        ACCELERATE,
        drop("model.safetensors", "custom_checkpoint_0.pkl"),
        "no file holds the weights, which Accelerate",
    ),
}


@pytest.fixture(params=LOST.values(), ids=LOST)
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    sample, change, said = request.param
    folder = Path(shutil.copytree(sample, tmp_path / sample.name))
    change(folder)
    return folder, said


def test_a_part_that_was_lost_is_a_half_save(lost: tuple[Path, str]) -> None:
    folder, said = lost
    result = ckptcheck.check(folder, select=("CK1",))
    assert result.verdict is Verdict.FAIL
    assert [one.code for one in result.findings] == ["CK103"]
    assert said in result.findings[0].message


def test_what_is_left_is_still_read_and_says_what_it_lacks(lost: tuple[Path, str]) -> None:
    folder, said = lost
    result = ckptcheck.inspect(folder)
    assert result.parts["tensors"] or result.parts["values"]
    assert any(said in note for note in result.parts["notes"])
    assert ckptcheck.diff(folder, folder).verdict is Verdict.PASS
    assert [one.flaw for one in read_raw(folder).defects] == [Flaw.INCOMPLETE]


WHOLE: dict[str, tuple[Path, Change]] = {
    "as saved": (TRAINER, drop()),
    "a save of the model only": (TRAINER, drop("optimizer.pt", "scheduler.pt", "rng_state.pth")),
    "a Trainer that saved no generators yet": (TRAINER, both(drop("rng_state.pth"), of_an_old_trainer)),
    "an adapter as saved": (LORA, drop()),
    "an adapter of a name": (
        LORA,
        both(moved("adapter_model.safetensors", "second/adapter_model.safetensors"),
             moved("adapter_config.json", "second/adapter_config.json")),
    ),
    "FSDP's optimizer in a file": (TRAINER, moved("optimizer.pt", "optimizer.bin")),
    "FSDP's model in a file": (TRAINER, moved("model.safetensors", "pytorch_model_fsdp_0_rank0.bin")),
    "a module's weights in a sub-folder": (TRAINER, moved("model.safetensors", "0_Embedding/model.safetensors")),
    "optimizers and schedules of several names": (ACCELERATE, double("model.safetensors", "optimizer.bin")),
    "samplers with gaps": (ACCELERATE, written("sampler_2.bin", {"seed": 1})),
    "no schedule": (ACCELERATE, drop("scheduler.bin")),
    "a model among the objects of one's own": (ACCELERATE, drop("model.safetensors")),
    "an optimizer of one's own": (ACCELERATE, drop("scheduler.bin", "random_states_0.pkl")),
}  # fmt: skip


@pytest.mark.parametrize(("sample", "change"), WHOLE.values(), ids=WHOLE)
def test_what_a_writer_may_leave_out_raises_no_alarm(sample: Path, change: Change, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(sample, tmp_path / sample.name))
    change(folder)
    assert not ckptcheck.check(folder, select=("CK1",)).findings


def test_deepspeed_keeps_the_optimizer_of_a_trainer_elsewhere(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(TRAINER, tmp_path / "checkpoint-2"))
    drop("optimizer.pt", "scheduler.pt", "model.safetensors")(folder)
    shutil.copytree(CHECKPOINTS / "10_deepspeed/z2_bf16/global_step2", folder / "global_step2")
    (folder / "latest").write_text("global_step2")
    assert not [one.code for one in ckptcheck.check(folder, select=("CK1",)).findings if one.code == "CK103"]
    drop("rng_state.pth")(folder)
    assert not [one.code for one in ckptcheck.check(folder, select=("CK1",)).findings if one.code == "CK103"]


def test_a_trainer_state_alone_is_no_checkpoint_that_was_cut_short(tmp_path: Path) -> None:
    shutil.copy(TRAINER / "trainer_state.json", tmp_path)
    assert not ckptcheck.check(tmp_path, select=("CK1",)).findings

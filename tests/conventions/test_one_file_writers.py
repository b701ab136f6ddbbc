"""Writers of one file: told by what is in it, each part in its place, nothing lost, and nobody else's file taken."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.table import CONVENTIONS
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.training_state import Entry
from tests.conventions import one_file_writers as written
from tests.conventions.made import raw_tree

STEPS = written.STEPS


def kept(root: Any, tmp_path: Path, name: str = "any.pt") -> Checkpoint:
    torch.save(root, tmp_path / name)
    return explain(read_raw(tmp_path / name))


@dataclass(frozen=True)
class Case:
    """What is to be found in a writer's file: `words` tell its step, `models` are weights beside the model."""

    make: Callable[[], Any]
    writer: str
    step: int | None
    words: str
    sections: set[str]
    optimizers: int = 1
    models: frozenset[str] = frozenset()


EMA = frozenset({"ema"})
CASES = [
    Case(written.nanogpt, "nanogpt", STEPS, "iter_num 3", set()),
    Case(written.timm, "timm", None, "epoch 1, from 0", {"scaler", "ema"}, models=EMA),
    Case(written.open_clip, "open-clip", None, "epoch 2", {"scaler"}),
    Case(written.fairseq, "fairseq", STEPS, "num_updates 3", {"schedule", "ema", "data"}, models=EMA),
    Case(written.fairseq_fp16, "fairseq", STEPS, "num_updates 3", {"schedule", "ema", "data", "scaler"}, models=EMA),
    Case(written.fairseq_criterion, "fairseq", STEPS, "num_updates 3", {"schedule", "ema", "data"},
         models=EMA | {"model", "criterion"}),
    Case(written.ultralytics, "ultralytics", STEPS, "updates 3", {"scaler"}, models=EMA),
    Case(written.ultralytics_finished, "ultralytics", None, "epoch -1", set(), optimizers=0),
    Case(written.yolov5, "ultralytics", STEPS, "updates 3", {"ema"}, models=EMA),
    Case(written.mmengine, "mmengine", STEPS, "meta.iter 3", {"schedule", "scaler"}),
    Case(written.mmengine_ema, "mmengine", STEPS, "meta.iter 3", {"schedule", "scaler", "ema"}, models=EMA),
    Case(written.mmengine_of_two, "mmengine", STEPS, "meta.iter 3", {"schedule", "scaler"}, optimizers=2),
    Case(written.detectron2, "detectron2", STEPS, "iteration 2, from 0", {"schedule", "scaler"}),
    Case(written.fvcore, "detectron2", STEPS, "iteration 2, from 0", {"schedule"}),
]  # fmt: skip
IDS = [case.make.__name__ for case in CASES]
WRITERS = [case.make for case in CASES]
OWN = [one for one in CONVENTIONS if one.name in {case.writer for case in CASES}]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_each_part_of_a_writers_file_is_in_its_place(case: Case, tmp_path: Path) -> None:
    found = kept(case.make(), tmp_path)
    assert (found.convention, found.state.step, found.recorded_step) == (case.writer, case.step, case.words)
    assert set(found.state.sections) - {"extra", "progress"} == case.sections
    assert set(found.models) == case.models
    assert found.unrecognised == ()
    assert len(found.state.optimizers) == case.optimizers


def foreign(value: Any) -> Any:
    """A live object as what a pickle would build it from."""
    if type(value).__module__ in ("builtins", "collections") or isinstance(value, torch.Tensor | nn.Module):
        return value
    return str(value)


def parameters(found: Checkpoint) -> dict[str, bytes]:
    return {name: bytes(one.entry.ref.fetch()) for name, one in found.state.parameters.items() if one.entry.ref}


def tensors(entries: Mapping[str, Entry]) -> dict[str, bytes]:
    return {path: bytes(one.ref.fetch()) for path, one in entries.items() if one.ref is not None}


def live(state: Mapping[str, torch.Tensor], *, buffers: bool = False) -> dict[str, bytes]:
    ends = ("running_mean", "running_var", "num_batches_tracked")
    return {name: one.numpy().tobytes() for name, one in state.items() if buffers or not name.endswith(ends)}


MODELS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (written.nanogpt, lambda root: root["model"]),
    (written.timm, lambda root: root["state_dict"]),
    (written.open_clip, lambda root: {name.removeprefix("module."): one for name, one in root["state_dict"].items()}),
    (written.ultralytics, lambda root: root["ema"].state_dict()),
    (written.ultralytics_finished, lambda root: root["model"].state_dict()),
    (written.yolov5, lambda root: root["model"].state_dict()),
    (written.mmengine, lambda root: root["state_dict"]),
    (written.fairseq_criterion, lambda root: {
        **root["model"], **{f"criterion.{name}": one for name, one in root["criterion"].items()}}),
    (written.detectron2, lambda root: root["model"]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "model"), MODELS, ids=[make.__name__ for make, _ in MODELS])
def test_the_model_is_the_one_that_trains(make: Callable[[], Any], model: Any, tmp_path: Path) -> None:
    root = make()
    assert parameters(kept(root, tmp_path)) == live(model(root))


def test_mmengine_keeps_the_model_under_the_names_of_the_average(tmp_path: Path) -> None:
    root = written.mmengine_ema()
    found = kept(root, tmp_path)
    names = list(root["state_dict"])
    assert parameters(found) == live({name: root["ema_state_dict"][f"module.{name}"] for name in names})
    average = {**root["state_dict"], "steps": root["ema_state_dict"]["steps"]}
    assert tensors(found.state.sections["ema"]) == live(average, buffers=True)
    assert "averaged weights" in found.notes[0]
    assert [*found.models["ema"]] == [*root["state_dict"]]


def test_an_average_that_mmengine_did_not_swap_is_the_average(tmp_path: Path) -> None:
    root = written.mmengine()
    root["ema_state_dict"] = {name: one + 1 for name, one in root["state_dict"].items()}
    found = kept(root, tmp_path)
    assert parameters(found) == live(root["state_dict"])
    assert tensors(found.state.sections["ema"]) == live(root["ema_state_dict"], buffers=True)


AVERAGES: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (written.timm, lambda root: root["state_dict_ema"]),
    (written.yolov5, lambda root: root["ema"].state_dict()),
    (written.fairseq, lambda root: {
        **root["extra_state"]["ema"],
        **{f"ema_fp32_params.{name}": one for name, one in root["extra_state"]["ema_fp32_params"].items()}}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "average"), AVERAGES, ids=[make.__name__ for make, _ in AVERAGES])
def test_the_average_has_the_names_of_the_model(make: Callable[[], Any], average: Any, tmp_path: Path) -> None:
    root = make()
    assert tensors(kept(root, tmp_path).state.sections["ema"]) == live(average(root), buffers=True)


def test_a_module_that_is_an_average_keeps_what_it_has_beside_its_tensors(tmp_path: Path) -> None:
    root = written.yolov5()
    root["ema"].conv.scale = torch.tensor(3.5)
    extra = kept(root, tmp_path).state.sections["extra"]
    assert extra["ema.conv.out_channels"].value == 3
    held = [bytes(one.ref.fetch()) for path, one in extra.items() if path.startswith("ema.conv.scale") and one.ref]
    assert held == [torch.tensor(3.5).numpy().tobytes()]


def test_a_file_of_the_average_alone_says_so_and_is_no_average_of_itself(tmp_path: Path) -> None:
    found = kept(written.ultralytics(), tmp_path)
    assert "ema" not in found.state.sections
    assert found.notes == ("the file keeps the averaged weights alone: a resume starts the model from them, too",)


def test_a_finished_training_says_that_nothing_is_left_to_resume(tmp_path: Path) -> None:
    found = kept(written.ultralytics_finished(), tmp_path)
    assert len(found.notes) == 1
    assert "finished" in found.notes[0]
    assert not any("finished" in note for note in kept({**written.ultralytics(), "epoch": -1}, tmp_path).notes)


def test_scales_lie_where_scales_belong(tmp_path: Path) -> None:
    one = kept(written.mmengine(), tmp_path).state.sections["scaler"]
    assert {path: entry.value for path, entry in one.items()} == written.scaler()
    two = kept(written.mmengine_of_two(), tmp_path).state.sections["scaler"]
    assert (two["optimizer.body.loss_scaler.scale"].value, two["optimizer.head.loss_scaler.scale"].value) == (65536, 8)
    flat = kept(written.fairseq_fp16(), tmp_path)
    assert {path: entry.value for path, entry in flat.state.sections["scaler"].items()} == {"loss_scale": 64}
    for make in (written.mmengine, written.mmengine_of_two, written.fairseq_fp16):
        assert not any("loss_scale" in path for path in kept(make(), tmp_path).state.sections["extra"])
    assert "one flat copy" in flat.notes[0]


def test_schedules_are_the_latest_ones(tmp_path: Path) -> None:
    found = kept(written.fairseq(), tmp_path).state.sections
    assert {path: entry.value for path, entry in found["schedule"].items()} == {"best": 4.5}
    assert found["extra"]["optimizer_history[0].lr_scheduler_state.best"].value == 9.5
    assert not any(path.startswith("optimizer_history[1].lr_scheduler_state") for path in found["extra"])
    listed = kept(written.mmengine(), tmp_path).state.sections["schedule"]
    assert (listed["[0].last_step"].value, listed["[1].last_step"].value) == (STEPS, 1)
    named = kept(written.mmengine_of_two(), tmp_path).state.sections["schedule"]
    assert named["param_schedulers.head[1].gamma"].value == 0.1


def test_the_place_in_the_data_is_that_of_fairseqs_iterator(tmp_path: Path) -> None:
    sections = kept(written.fairseq(), tmp_path).state.sections
    assert not any("train_iterator" in path for path in sections["extra"])
    data = sections["data"]
    assert {path: entry.value for path, entry in data.items()} == {
        "train_iterator.version": 2, "train_iterator.epoch": 2, "train_iterator.iterations_in_epoch": 1,
        "train_iterator.shuffle": True,
    }  # fmt: skip


def test_settings_are_no_progress(tmp_path: Path) -> None:
    progress = kept(written.nanogpt(), tmp_path).state.sections["progress"]
    assert {path: entry.value for path, entry in progress.items()} == {"iter_num": STEPS}
    progress = kept(written.mmengine(), tmp_path).state.sections["progress"]
    assert {path: entry.value for path, entry in progress.items()} == {"meta.epoch": 0, "meta.iter": STEPS}


def test_several_optimizers_go_by_the_writers_names(tmp_path: Path) -> None:
    found = kept(written.mmengine_of_two(), tmp_path)
    assert found.optimizer_labels == ("optimizer.body", "optimizer.head")
    assert [len(one.state) for one in found.state.optimizers] == [4, 4]


@pytest.mark.parametrize("make", [make for make in WRITERS if make is not written.fvcore])
def test_what_a_user_put_beside_is_sorted_as_in_any_script(make: Callable[[], Any]) -> None:
    root, teacher = make(), nn.Linear(2, 2)
    root = {key: foreign(value) for key, value in root.items()}
    trains = parameters(explain(raw_tree(root)))
    more = {"rng": {"torch": torch.get_rng_state()}, "mine": {"a": 1}, "teacher": teacher.state_dict()}
    found = explain(raw_tree({**root, **more}))
    assert list(found.state.rng) == ["torch"]
    assert found.unrecognised == ("mine",)
    assert found.state.sections["extra"]["mine.a"].value == 1
    assert parameters(found) == trains
    held = {name: one.tobytes() for name, one in ((n, t.detach().numpy()) for n, t in teacher.named_parameters())}
    extra = tensors(found.state.sections["extra"])
    assert {name: extra[f"teacher.{name}"] for name in held} == held


def test_an_older_epoch_of_timm_is_the_one_to_begin_with(tmp_path: Path) -> None:
    assert kept({**written.timm(), "version": 1}, tmp_path).recorded_step == "epoch 1"


def test_a_counter_of_steps_goes_before_an_epoch(tmp_path: Path) -> None:
    found = kept({**written.open_clip(), "global_step": 40, "samples_seen": 320}, tmp_path)
    assert (found.convention, found.state.step, found.recorded_step) == ("open-clip", 40, "global_step 40")

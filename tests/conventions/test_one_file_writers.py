"""Writers of one file: told by what is in it, each part in its place, nothing lost, and nobody else's file taken."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.conventions.table import CONVENTIONS
from ckptcheck.errors import CkptcheckError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Foreign, RawTree, tensors_in
from ckptcheck.state.training_state import Entry
from tests.check_cases.training import ConvNet, Mlp, saved
from tests.conventions import one_file_writers as written
from tests.conventions.made import raw_tree
from tests.conventions.test_any_tree import refs

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


def test_scales_lie_where_scales_belong(tmp_path: Path) -> None:
    one = kept(written.mmengine(), tmp_path).state.sections["scaler"]
    assert {path: entry.value for path, entry in one.items()} == written.scaler()
    two = kept(written.mmengine_of_two(), tmp_path).state.sections["scaler"]
    assert (two["optimizer.body.loss_scaler.scale"].value, two["optimizer.head.loss_scaler.scale"].value) == (65536, 8)
    flat = kept(written.fairseq_fp16(), tmp_path)
    assert {path: entry.value for path, entry in flat.state.sections["scaler"].items()} == {"loss_scale": 64}
    assert "one flat copy" in flat.notes[0]


def test_schedules_are_the_latest_ones(tmp_path: Path) -> None:
    found = kept(written.fairseq(), tmp_path).state.sections
    assert {path: entry.value for path, entry in found["schedule"].items()} == {"best": 4.5}
    assert found["extra"]["optimizer_history[0].lr_scheduler_state.best"].value == 9.5
    listed = kept(written.mmengine(), tmp_path).state.sections["schedule"]
    assert (listed["[0].last_step"].value, listed["[1].last_step"].value) == (STEPS, 1)
    named = kept(written.mmengine_of_two(), tmp_path).state.sections["schedule"]
    assert named["param_schedulers.head[1].gamma"].value == 0.1


def test_the_place_in_the_data_is_that_of_fairseqs_iterator(tmp_path: Path) -> None:
    data = kept(written.fairseq(), tmp_path).state.sections["data"]
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


def without(root: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in root.items() if key not in keys}


def completed(root: dict[str, Any]) -> dict[str, Any]:
    """The same keys, and an iteration that counts completed steps."""
    return {**root, "iteration": STEPS}


def of_imagenet() -> dict[str, Any]:
    """The torch project's own ImageNet example."""
    root = written.timm()
    return {
        "epoch": 1,
        "arch": "resnet50",
        "best_acc1": 70.0,
        **{key: root[key] for key in ("state_dict", "optimizer")},
    }


def of_mmcv() -> dict[str, Any]:
    root = without(written.mmengine(), "message_hub", "param_schedulers")
    return {**root, "meta": {"mmcv_version": "1.7.0", "epoch": 1, "iter": STEPS, "time": "now"}}


FOREIGN: dict[str, Callable[[], Any]] = {
    "a careful script": lambda: saved(Mlp(), torch.optim.SGD(Mlp().parameters(), lr=0.1)),
    "a script that counts iter_num": lambda: without(written.nanogpt(), "model_args"),
    "a script with model_args": lambda: without(written.nanogpt(), "best_val_loss"),
    "model_args that are no dict": lambda: {**written.nanogpt(), "model_args": 3},
    "the ImageNet example": of_imagenet,
    "a version that is a text": lambda: {**written.timm(), "version": "2.0"},
    "an epoch and an arch": lambda: without(written.timm(), "version"),
    "a named run without a temperature": lambda: {
        **written.open_clip(), "state_dict": {"visual.weight": torch.ones(2, 3)}},
    "a temperature without a name": lambda: without(written.open_clip(), "name"),
    "a model with an extra_state": lambda: without(written.fairseq(), "optimizer_history"),
    "a history of another form": lambda: {**written.fairseq(), "optimizer_history": [{"lr": 0.1}]},
    "an empty history": lambda: {**written.fairseq(), "optimizer_history": []},
    "an average that is a state_dict": lambda: {
        **written.ultralytics(), "model": ConvNet().state_dict(), "ema": ConvNet().state_dict()},
    "a module without a counter": lambda: without(written.yolov5(), "updates"),
    "MMCV's of old": of_mmcv,
    "meta that is a text": lambda: {**written.mmengine(), "meta": "mmengine_version"},
    "iterations that are completed": lambda: completed(written.fvcore()),
    "a trainer without an optimizer": lambda: {**written.detectron2(), "trainer": {"iteration": 2, "epochs": 3}},
    "more than the checkpointer was given": lambda: {**written.fvcore(), "best": 0.5},
    "a bare state_dict": lambda: Mlp().state_dict(),
    "a bare module": Mlp,
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_a_near_miss_is_nobodys_own(name: str, tmp_path: Path) -> None:
    assert kept(FOREIGN[name](), tmp_path).convention == "plain"


@pytest.mark.parametrize(
    ("name", "last_epoch", "is_own"),
    [
        ("model_0000002.pth", 0, True),  # a schedule that was never stepped
        ("model_final.pth", 0, True),
        ("model_0000003.pth", 0, False),
        ("any.pth", 0, False),
        ("model_0000002.pth", 2, False),  # of a library that counts completed steps
        ("any.pth", 3, True),
    ],
)
def test_an_older_file_is_fvcores_where_iterations_count_from_0(
    name: str, last_epoch: int, is_own: bool, tmp_path: Path
) -> None:
    root = written.fvcore()
    root["scheduler"]["last_epoch"] = last_epoch
    assert (kept(root, tmp_path, name).convention == "detectron2") is is_own


def junk() -> list[Any]:
    """Values that may lie anywhere in a file that somebody changed, or that is nobody's."""
    tensor = torch.arange(6.0).reshape(2, 3)
    return [
        None, [tensor.clone(), "text"], {"a": {"b": tensor.clone()}, 0: 7}, tensor.clone(), nn.Linear(2, 2),
        {"state": {}, "param_groups": [{"params": [0], "lr": 0.1}]}, nn.Linear(2, 2).state_dict(),
    ]  # fmt: skip


def changed(root: Any, depth: int) -> Iterator[Any]:
    """The root with one of its values replaced, or taken out, at a time."""
    if not isinstance(root, dict) or depth == 0:
        return
    for key, value in root.items():
        yield {other: one for other, one in root.items() if other != key}
        for one in junk()[:: 1 if depth == 2 else 4]:
            yield {**root, key: one}
        inner = value[-1] if isinstance(value, list) and value else value
        for one in changed(inner, depth - 1):
            yield {**root, key: [*value[:-1], one] if isinstance(value, list) else one}


@pytest.mark.parametrize("make", WRITERS, ids=IDS)
def test_a_file_with_anything_in_any_place_is_explained_and_loses_no_tensor(make: Callable[[], Any]) -> None:
    root = make()
    root.pop("config", None)
    for one in changed(root, 2):
        raw = raw_tree({key: foreign(value) for key, value in one.items()})
        found = explain(raw)
        aliased = {one.entry.ref.place for one in found.state.parameters.values() if one.aliases}  # type: ignore[union-attr]
        held = refs(found)
        lost = [one for one in tensors_in(raw.root) if id(one) not in held and one.place not in aliased]
        assert not lost, {key: type(value) for key, value in one.items()}


def foreign(value: Any) -> Any:
    """A live object as what a pickle would build it from."""
    if type(value).__module__ in ("builtins", "collections") or isinstance(value, torch.Tensor | nn.Module):
        return value
    return str(value)


@pytest.mark.parametrize("root", [*junk()[:4], Foreign("a.B", state={"model": 1}), {1: 2}, {("a", 1): None}])
def test_no_writer_claims_what_is_no_dict_of_its_own_or_raises(root: Any) -> None:
    for container in ("torch-zip", "folder", "zip", "safetensors"):
        raw = RawTree(Path("any"), container, root, 0)
        assert not [one.name for one in OWN if one.claims(raw)]


def test_tensors_for_counters_are_read_or_left(tmp_path: Path) -> None:
    root = {**written.nanogpt(), "iter_num": torch.tensor(41)}
    assert kept(root, tmp_path).state.step == 41
    root = written.detectron2()
    root["iteration"] = torch.tensor(2)
    assert kept(root, tmp_path).state.step == STEPS


def test_names_that_a_user_gives_reach_the_optimizer(tmp_path: Path) -> None:
    root = written.open_clip()
    torch.save(root, tmp_path / "a.pt")
    names = ["logit_scale", "visual.bias", "text.bias", "ln.weight", "ln.bias", "visual.weight", "text.weight"]
    found = explain(read_raw(tmp_path / "a.pt"), names)
    assert [list(one.members) for one in found.state.optimizers[0].groups] == [names[:5], names[5:]]
    with pytest.raises(CkptcheckError, match="6 parameter names"):
        explain(read_raw(tmp_path / "a.pt"), names[1:])


def test_what_is_explained_is_not_changed(tmp_path: Path) -> None:
    """Parts are put together anew: the raw tree stays as it was read."""
    for make in WRITERS:
        torch.save(make(), tmp_path / "a.pt")
        raw = read_raw(tmp_path / "a.pt")
        before = [id(one) for one in tensors_in(raw.root)], copy.copy(raw.root)
        explain(raw)
        assert ([id(one) for one in tensors_in(raw.root)], raw.root) == before

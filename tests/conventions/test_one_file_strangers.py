"""Files that are nearly a writer's own, and a writer's own with anything in any place of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import CkptcheckError
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.checkpoint import NameSource
from ckptcheck.state.raw import Foreign, RawTree, tensors_in
from tests.check_cases.training import ConvNet, Mlp, saved
from tests.conventions import one_file_writers as written
from tests.conventions.made import raw_tree
from tests.conventions.test_any_tree import refs
from tests.conventions.test_one_file_writers import IDS, OWN, WRITERS, foreign, kept

STEPS = written.STEPS


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
    "an arch that is no text": lambda: {**written.timm(), "arch": 3},
    "an epoch and an arch": lambda: without(written.timm(), "version"),
    "a named run without a temperature": lambda: {
        **written.open_clip(), "state_dict": {"visual.weight": torch.ones(2, 3)}},
    "a temperature without a name": lambda: without(written.open_clip(), "name"),
    "a model with an extra_state": lambda: without(written.fairseq(), "optimizer_history"),
    "a history of another form": lambda: {**written.fairseq(), "optimizer_history": [{"lr": 0.1}]},
    "an empty history": lambda: {**written.fairseq(), "optimizer_history": []},
    "an average that is a state_dict": lambda: {
        **written.ultralytics(), "model": ConvNet().state_dict(), "ema": ConvNet().state_dict()},
    "neither a model nor an average": lambda: {**written.ultralytics(), "ema": None},
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
        before = [id(one) for one in tensors_in(raw.root)], dict(raw.root)
        explain(raw)
        assert ([id(one) for one in tensors_in(raw.root)], raw.root) == before


def test_a_file_that_keeps_no_order_names_nothing_by_its_order() -> None:
    root = written.mmengine()
    assert explain(raw_tree(root)).namings[0].source is NameSource.MODEL_ORDER
    assert explain(raw_tree(root, unordered=True)).namings[0].source is NameSource.NONE

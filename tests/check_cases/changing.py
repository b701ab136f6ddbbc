"""Checkpoints of real runs, and real samples, with a fault put into what was saved."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.check_cases.case import Make
from tests.check_cases.training import Mlp, saved, train
from tests.readers import dcp_folders
from tests.samples import CHECKPOINTS

Change = Callable[[Any], None]
DEEPSPEED = "10_deepspeed/universal_z1"


def put(folder: Path, state: Any, name: str = "last.pt") -> Path:
    torch.save(state, folder / name)
    return folder / name


def trained(kind: Any = torch.optim.AdamW, model: nn.Module | None = None, **options: Any) -> dict[str, Any]:
    """What a careful script saves after three steps of an optimizer that keeps names."""
    model = model or Mlp()
    optimizer = kind(list(model.named_parameters()), **options)
    train(model, optimizer)
    return saved(model, optimizer)


def changed(change: Change, kind: Any = torch.optim.AdamW, **options: Any) -> Make:
    """A checkpoint with a fault put into what was saved."""

    def make(folder: Path) -> Path:
        state = trained(kind, **options)
        change(state)
        return put(folder, state)

    return make


def of_sample(sample: str, file: str, change: Change | None) -> Make:
    """A real checkpoint with one of its files changed, or removed where nothing changes it."""

    def make(folder: Path) -> Path:
        source = CHECKPOINTS / sample
        place = folder / source.name
        if source.is_dir():
            shutil.copytree(source, place)
        else:
            shutil.copy(source, place)
        path = place / file if file else place
        if change is None:
            path.unlink()
            return place
        state = torch.load(path, weights_only=False)
        change(state)
        torch.save(state, path)
        return place

    return make


def of_dcp(change: Change) -> Make:
    """A distributed checkpoint by torch's own planner of a real run's state, with a fault."""

    def make(folder: Path) -> Path:
        state = torch.load(CHECKPOINTS / "09_fsdp_ddp" / "fsdp2_full.pt", weights_only=False)
        change(state)
        return dcp_folders.save(state, folder / "step-3")

    return make


def of_universal(name: str) -> Make:
    """DeepSpeed's universal checkpoint, of which a parameter's moments are lost."""

    def make(folder: Path) -> Path:
        place = Path(shutil.copytree(CHECKPOINTS / DEEPSPEED, folder / "universal"))
        for path in (place / "zero" / name).iterdir():
            if path.name != "fp32.pt":
                path.unlink()
        return place

    return make


def kept(sample: str) -> Make:
    """A real checkpoint as it lies."""
    return lambda folder: CHECKPOINTS / sample


def index_of(state: dict[str, Any], name: str) -> int:
    (group,) = state["optimizer"]["param_groups"]
    return group["params"][group["param_names"].index(name)]


def without_entry(name: str) -> Change:
    return lambda state: state["optimizer"]["state"].pop(index_of(state, name))


def without_key(name: str, key: str) -> Change:
    return lambda state: state["optimizer"]["state"][index_of(state, name)].pop(key)


def drop_everywhere(key: str) -> Change:
    def change(state: dict[str, Any]) -> None:
        for one in state["optimizer"]["state"].values():
            del one[key]

    return change


def without_parts(*parts: str) -> Change:
    def change(state: dict[str, Any]) -> None:
        for part in parts:
            del state[part]

    return change


def emptied(state: dict[str, Any]) -> None:
    state["optimizer"]["state"] = {}

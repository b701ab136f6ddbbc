"""Trainings that a check must understand: schedules, averages, frozen and idle parameters, several optimizers."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

from tests.check_cases.case import Make
from tests.check_cases.changing import emptied, put, trained
from tests.check_cases.training import Mlp, decay_groups, saved, train
from tests.samples import CHECKPOINTS


def emptied_with_a_schedule(folder: Path) -> Path:
    state = scheduled(lambda one: lr_scheduler.StepLR(one, 2))
    emptied(state)
    del state["step"]
    return put(folder, state)


def scheduled(build: Callable[[Any], Any], *, keep: bool = True, kind: Any = torch.optim.AdamW) -> dict[str, Any]:
    model = Mlp()
    optimizer = kind(list(model.named_parameters()), lr=0.1)
    scheduler = build(optimizer)
    train(model, optimizer, scheduler=None if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else scheduler)
    return saved(model, optimizer, scheduler=scheduler if keep else None)


def warm_up(optimizer: Any) -> Any:
    first = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    return lr_scheduler.SequentialLR(optimizer, [first, lr_scheduler.CosineAnnealingLR(optimizer, 9)], [2])


def weights_and_a_schedule(folder: Path) -> Path:
    state = scheduled(lambda one: lr_scheduler.CosineAnnealingLR(one, 9))
    del state["optimizer"]
    return put(folder, state)


def a_schedule_that_was_not_saved(folder: Path) -> Path:
    return put(folder, scheduled(lambda one: lr_scheduler.StepLR(one, 2), keep=False))


def schedule_kept(build: Callable[[Any], Any]) -> Make:
    return lambda folder: put(folder, scheduled(build, kind=torch.optim.SGD))


def chained(optimizer: Any) -> Any:
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, 0.5), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )


def in_half(folder: Path) -> Path:
    model = Mlp()
    optimizer = torch.optim.SGD(list(model.named_parameters()), momentum=0.9)
    train(model, optimizer)
    return put(folder, saved(model.half(), optimizer))


def nano_in_half(folder: Path) -> Path:
    """The script of nanoGPT trains in float16 with a scaler that it does not save."""
    state = torch.load(CHECKPOINTS / "11_nanogpt" / "ckpt.pt", weights_only=False)
    state["config"]["dtype"] = "float16"
    return put(folder, state, "ckpt.pt")


def with_average(change: Callable[[dict[str, Any]], None], **more: Any) -> Make:
    """A training with averaged weights beside the model, and a fault in these."""

    def make(folder: Path) -> Path:
        state = trained() | more
        average = {name: one.clone() for name, one in state["model"].items()}
        change(average)
        return put(folder, state | {"ema": average})

    return make


def an_average_that_is_the_model(folder: Path) -> Path:
    state = trained()
    return put(folder, state | {"ema": dict(state["model"])})


def an_average_never_updated(folder: Path) -> Path:
    state = trained()
    average = {"shadow": {name: one.clone() for name, one in state["model"].items()}, "num_updates": 0}
    return put(folder, state | {"ema": average})


def swa_that_begins_later(folder: Path) -> Path:
    model = Mlp()
    optimizer = torch.optim.SGD(list(model.named_parameters()), momentum=0.9)
    average = AveragedModel(model)
    train(model, optimizer)
    return put(folder, saved(model, optimizer, swa_model=average.state_dict()))


def an_average_of_what_trains(folder: Path) -> Path:
    """Frozen parameters are not averaged."""
    model = Mlp()
    model.layers[0].requires_grad_(False)
    optimizer = torch.optim.AdamW([(name, one) for name, one in model.named_parameters() if one.requires_grad])
    train(model, optimizer)
    average = {name: 0.9 * one.detach() for name, one in model.named_parameters() if one.requires_grad}
    return put(folder, saved(model, optimizer, ema=average))


def a_group_cut_out(state: dict[str, Any]) -> None:
    group = state["optimizer"]["param_groups"][0]
    for key in ("params", "param_names"):
        group[key] = group[key][:-2]


def before_the_first_step(folder: Path) -> Path:
    model = Mlp()
    optimizer = torch.optim.AdamW(list(model.named_parameters()))
    return put(folder, saved(model, optimizer, step=0))


class Unused(nn.Module):
    """An Mlp with a module and a token that forward does not use: extra, mask_token."""

    def __init__(self) -> None:
        super().__init__()
        self.mask_token = nn.Parameter(torch.zeros(6))
        self.scale = nn.Parameter(torch.ones(6))
        self.inner = Mlp()
        self.extra = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x * self.scale)


def never_trained(folder: Path) -> Path:
    return put(folder, trained(model=Unused()))


def frozen(*parts: str, kind: Any = torch.optim.AdamW) -> Make:
    """Parameters in the groups that never had a gradient, by a part of their names."""

    def make(folder: Path) -> Path:
        model = Mlp()
        for name, one in model.named_parameters():
            one.requires_grad_(not any(part in name for part in parts))
        return put(folder, trained(kind, model))

    return make


def frozen_without_names(folder: Path) -> Path:
    """An optimizer in a file of its own, the first layer frozen."""
    model = Mlp()
    model.layers[0].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer)
    return put(folder, optimizer.state_dict(), "optimizer.pt")


def momentum_of_old_torch(state: dict[str, Any]) -> None:
    for one in state["optimizer"]["state"].values():
        one["momentum_buffer"] = None


def a_second_optimizer_that_begins_later(folder: Path) -> Path:
    model, other = Mlp(), Mlp()
    first = torch.optim.Adam(model.parameters())
    second = torch.optim.Adam(other.parameters())
    train(model, first)
    state = {"model": model.state_dict(), "critic": other.state_dict(), "optimizer_g": first.state_dict(),
             "optimizer_d": second.state_dict(), "step": 3, "rng": {"torch": torch.get_rng_state()}}  # fmt: skip
    return put(folder, state)


def sparse(folder: Path) -> Path:
    table = nn.Embedding(7, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.named_parameters()))
    table(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    return put(folder, saved(table, optimizer, step=1))


def muon(folder: Path) -> Path:
    """Muon for the matrices, AdamW for the rest, as it is meant."""
    model = Mlp()
    whole, rest = (group["params"] for group in decay_groups(model))
    optimizers = [torch.optim.Muon(whole, lr=0.01), torch.optim.AdamW(rest)]
    for one in optimizers:
        train(model, one)
    state = {"model": model.state_dict(), "optimizers": [one.state_dict() for one in optimizers], "step": 3}
    return put(folder, state)


def half_weights_of_a_release(folder: Path) -> Path:
    return put(folder, Mlp().half().state_dict())


def released(folder: Path) -> Path:
    save_file(Mlp().state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def stripped(folder: Path) -> Path:
    return put(folder, trained() | {"optimizer": None, "ema": None, "epoch": -1, "rng": None})


def a_release_with_an_average(folder: Path) -> Path:
    model = Mlp()
    return put(folder, {"model": model.state_dict(), "ema": deepcopy(model).state_dict()})


class Settings:
    """A class of the training script."""


def a_release_with_objects(folder: Path) -> Path:
    return put(folder, {"model": Mlp().state_dict(), "config": Settings()})

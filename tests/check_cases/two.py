"""Two checkpoints of one training, a few real steps apart, and what is done to one of them."""

import copy
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.check_cases.training import Mlp, saved, train

Saved = dict[str, Any]
Change = Callable[[Saved, Saved], None]
"""Does something to the left's or the right's content before both are written."""
Between = Callable[[nn.Module, torch.optim.Optimizer], None]
"""What the training does between the two saves."""


class Backbone(nn.Module):
    """A backbone with batch norm and a head: backbone.0, backbone.1 (norm), head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.backbone(x)))


def untouched(left: Saved, right: Saved) -> None:
    """Leave both as the training saved them."""


def more_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Three steps on other batches."""
    train(model, optimizer, 3, seed=1)


def half_and_half(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups, named, in which layers.0.weight and layers.1.weight have other decays."""
    named = dict(model.named_parameters())
    decayed = ["layers.0.weight", "head.weight"]
    return [{"params": [(name, named[name]) for name in decayed], "weight_decay": 0.1},
            {"params": [(name, one) for name, one in named.items() if name not in decayed],
             "weight_decay": 0.0}]  # fmt: skip


def named(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """All parameters with their names."""
    return list(model.named_parameters())


def parameters(model: nn.Module) -> list[torch.Tensor]:
    """All parameters, without names."""
    return list(model.parameters())


def two(change: Change = untouched, *, model: Callable[[], nn.Module] = Mlp, groups: Callable[[Any], Any] = named,
        optimizer: Any = torch.optim.AdamW, between: Between = more_steps, schedule: Any = None,
        **options: Any) -> Callable[[Path], tuple[Path, Path]]:  # fmt: skip
    """Write the checkpoints of steps 3 and 6 of one training, changed, and return where they lie."""

    def make(folder: Path) -> tuple[Path, Path]:
        told = tuple(sorted(({"lr": 1e-2} | options).items()))
        left, right = copy.deepcopy(_trained((model, groups, optimizer, schedule), between, told))
        change(left, right)
        return written(folder, left, right)

    return make


@lru_cache(maxsize=64)
def _trained(made_of: tuple[Any, ...], between: Between, options: tuple[tuple[str, Any], ...]) -> tuple[Saved, Saved]:
    """Train, once for all cases that ask for the same."""
    model, groups, optimizer, schedule = made_of
    torch.manual_seed(0)
    module = model()
    stepped = optimizer(groups(module), **dict(options))
    scheduler = schedule(stepped) if schedule is not None else None
    train(module, stepped, 3, scheduler=scheduler)
    left = copy.deepcopy(saved(module, stepped, 3, scheduler))
    if scheduler is not None:
        train(module, stepped, 3, scheduler=scheduler, seed=1)
    else:
        between(module, stepped)
    return left, copy.deepcopy(saved(module, stepped, 6, scheduler))


def written(folder: Path, left: Saved, right: Saved) -> tuple[Path, Path]:
    """Write both with torch.save."""
    torch.save(left, folder / "left.pt")
    torch.save(right, folder / "right.pt")
    return folder / "left.pt", folder / "right.pt"


def state_of(side: Saved, name: str) -> dict[str, Any]:
    """The optimizer state of a parameter by name, of groups that list param_names."""
    groups = side["optimizer"]["param_groups"]
    at = {one: index for group in groups for one, index in zip(group["param_names"], group["params"], strict=True)}
    return side["optimizer"]["state"][at[name]]


def freeze(model: nn.Module, gradient: str = "none") -> None:
    """Freeze the backbone as scripts do: requires_grad off, its gradient None or left at zero."""
    for one in model.backbone.parameters():
        one.requires_grad_(False)
        one.grad = torch.zeros_like(one) if gradient == "zero" else None


def head_steps(model: nn.Module, optimizer: torch.optim.Optimizer, after: Callable[[], None] = lambda: None) -> None:
    """Three steps in which only the head's gradient is cleared, as `zero_grad` of a head alone does."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for one in model.head.parameters():
            one.grad = None
        model(torch.randn(5, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        after()


def frozen(gradient: str = "none", *, evaluated: bool = True) -> Between:
    """Freeze the backbone and go on with the head; without `evaluated` its norm goes on averaging."""

    def between(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        freeze(model, gradient)
        model.backbone.train(not evaluated)
        head_steps(model, optimizer)

    return between

"""Live trainings and the files that they leave, for tests of dry-runs."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import ckptcheck
from ckptcheck.experiment.run import Run
from tests.check_cases.training import Mlp, saved, train

Made = tuple[Path, Run]


def run_of(model: Any, optimizer: Any, **parts: Any) -> Run:
    """A run that is never stepped."""
    return ckptcheck.Run(model=model, optimizer=optimizer, step=lambda s: None, **parts)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def named(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.named_parameters(), lr=1e-3)


def cosine(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)


def file_of(
    folder: Path,
    model: nn.Module | None = None,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adamw,
    *,
    schedule: Callable[[Any], Any] | None = None,
    change: Callable[[dict[str, Any]], object] | None = None,
    **more: Any,
) -> Path:
    """A checkpoint of three real steps; `change` may edit what is saved."""
    model = model if model is not None else Mlp()
    own = optimizer(model)
    scheduler = schedule(own) if schedule is not None else None
    train(model, own, scheduler=scheduler)
    state = saved(model, own, scheduler=scheduler, **more)
    if change is not None:
        change(state)
    torch.save(state, folder / "state.pt")
    return folder / "state.pt"


def own_load(
    run: Run, *, parts: Iterable[str] = ("model", "optimizer"), after: Callable[[], object] | None = None
) -> Run:
    """The run with a load of its own, as scripts have it."""

    def load(path: Path) -> None:
        held = torch.load(path)
        for part in parts:
            getattr(run, part).load_state_dict(held[part])
        if after is not None:
            after()

    run.load, run.save = load, lambda path: None
    return run

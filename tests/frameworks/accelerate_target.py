"""A small network under Accelerate, as a script and as a target."""

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

import ckptcheck
from tests.check_cases.training import Tied, batch, decay_groups


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    """Model, optimizer and schedule, before they are prepared."""
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


def trained(folder: Path, steps: int = 3) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Model and optimizer after some steps; the checkpoint is the folder."""
    accelerator = Accelerator(cpu=True)
    model, optimizer, schedule = accelerator.prepare(*made())
    for number in range(steps):
        optimizer.zero_grad()
        loss = model(batch(model, torch.Generator().manual_seed(number))).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
    accelerator.save_state(str(folder))
    return accelerator.unwrap_model(model), optimizer.optimizer


def build(ctx: ckptcheck.Context) -> ckptcheck.Run:
    """The same three."""
    model, optimizer, schedule = made()

    def step(number: int) -> None:
        raise NotImplementedError("a dry-run makes no step")

    return ckptcheck.Run(model=model, optimizer=optimizer, scheduler=schedule, step=step)

"""A small network under Accelerate, as a script and as a target."""

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

import ckptcheck


class Tied(torch.nn.Module):
    """An embedding whose weight is the head's too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 4)
        self.body = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(self.embedding(tokens))))


def made() -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    """Model, optimizer and schedule, before they are prepared."""
    torch.manual_seed(0)
    model = Tied()
    matrices = [one for one in model.parameters() if one.ndim >= 2]
    rest = [one for one in model.parameters() if one.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


def trained(folder: Path, steps: int = 3) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Model and optimizer after some steps; the checkpoint is the folder."""
    accelerator = Accelerator(cpu=True)
    model, optimizer, schedule = accelerator.prepare(*made())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randint(0, 11, (5, 3))).square().mean()
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

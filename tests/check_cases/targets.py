"""Trainings that a checkpoint is to be loaded into."""

from copy import deepcopy

import torch
from torch import nn

import ckptcheck


class Mlp(nn.Module):
    """The model of `training.Mlp`, which a process of its own cannot import."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 3)


def head_first(ctx: ckptcheck.Context) -> ckptcheck.Run:
    """Begins with the head alone; the layers join a group of their own within the training."""
    model = Mlp()
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=0.01)
    return ckptcheck.Run(model=model, optimizer=optimizer, step=lambda step: None)


def with_scaler_and_average(ctx: ckptcheck.Context) -> ckptcheck.Run:
    """Scales its loss and averages its weights."""
    model = Mlp()
    return ckptcheck.Run(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        step=lambda step: None,
        scaler=torch.amp.GradScaler("cpu", init_scale=256.0),
        ema=deepcopy(model),
    )

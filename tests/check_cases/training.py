"""Real trainings, a few steps long, and what their scripts save."""

from typing import Any

import torch
from torch import nn


class Mlp(nn.Module):
    """Two layers of one shape, a norm, a head: layers.0, layers.1, norm, head."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width), nn.Linear(width, width)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(self.norm(x))


class Tied(nn.Module):
    """An embedding whose weight is the head's too: embedding.weight, body.weight, body.bias, head.weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(self.embedding(x))))


class ConvNet(nn.Module):
    """A convolution with batch norm: conv, bn, head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.bn = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.bn(self.conv(x))).mean((2, 3)))


def batch(model: nn.Module, generator: torch.Generator) -> torch.Tensor:
    """A batch that a model takes."""
    if isinstance(model, Tied):
        return torch.randint(0, 11, (5, 3), generator=generator)
    if isinstance(model, ConvNet):
        return torch.randn(4, 1, 6, 6, generator=generator)
    return torch.randn(5, 6, generator=generator)


def decay_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Matrices with decay, the rest without."""
    whole = [one for one in model.parameters() if one.ndim >= 2]
    rest = [one for one in model.parameters() if one.ndim < 2]
    return [{"params": whole, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3, *, scheduler: Any = None,
          seed: int = 0) -> None:  # fmt: skip
    """Real steps on random batches."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(batch(model, generator)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        if scheduler is not None:
            scheduler.step()


def saved(model: nn.Module, optimizer: torch.optim.Optimizer, step: int = 3, scheduler: Any = None,
          **more: Any) -> dict[str, Any]:  # fmt: skip
    """What a careful script saves."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
             "rng": {"torch": torch.get_rng_state()}, **more}  # fmt: skip
    return state | ({"scheduler": scheduler.state_dict()} if scheduler is not None else {})

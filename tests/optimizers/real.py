"""Real optimizers, run for two steps: what the rows of the table are held against."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

SHAPES = ((4, 3), (4,), ())
MATRICES = ((4, 3), (3, 5))


def stepped(make: Callable[[list[nn.Parameter]], Any], shapes: tuple[tuple[int, ...], ...]) -> Any:
    """An optimizer over parameters of these shapes after two steps."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    optimizer = make(parameters)
    sparse = isinstance(optimizer, torch.optim.SparseAdam)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(((one - 1) ** 2).sum() for one in parameters)
        loss.backward()
        for one in parameters:
            one.grad = one.grad.to_sparse() if sparse and one.dim() else one.grad
        return loss

    for _ in range(2):
        closure()
        optimizer.step(closure) if isinstance(optimizer, torch.optim.LBFGS) else optimizer.step()
    return optimizer


def torch_optimizers() -> list[str]:
    """Every optimizer class that torch.optim offers."""
    found = vars(torch.optim).values()
    kinds = [one for one in found if isinstance(one, type) and issubclass(one, torch.optim.Optimizer)]
    return sorted(one.__name__ for one in kinds if one is not torch.optim.Optimizer)

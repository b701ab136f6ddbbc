"""Small modules with real forward and backward passes, for scenarios that are about modules."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

from ckptcheck.lab.bench import HISTORY, KEPT_ALIVE, SEED, Bench, UnsuitableError, seed, stepped
from ckptcheck.lab.subject import step_needs_closure

SIZE: Final = (2, 3)
"""Outputs and inputs of a branch."""


class Branches(nn.Module):
    """Two branches over the same input; `used` names those that take part in a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(SIZE[1], SIZE[0], bias=False)
        self.other = nn.Linear(SIZE[1], SIZE[0], bias=False)
        self.used: tuple[str, ...] = ("one", "other")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of what the used branches make of it."""
        return torch.stack([getattr(self, name)(x) for name in self.used]).sum(0)


class Shared(nn.Module):
    """One weight in two modules, and a third one beside; `used` as above."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(SIZE[1], SIZE[0], bias=False)
        self.second = nn.Linear(SIZE[1], SIZE[0], bias=False)
        self.second.weight = self.first.weight
        self.beside = nn.Linear(SIZE[1], SIZE[0], bias=False)
        self.used: tuple[str, ...] = ("first", "second", "beside")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of what the used modules make of it."""
        return torch.stack([getattr(self, name)(x) for name in self.used]).sum(0)


@dataclass
class Training:
    """A module with an optimizer of the bench, and steps with real gradients; forward in bfloat16 by `autocast`."""

    module: Any
    optimizer: Any
    device: str
    made: int = 0
    autocast: bool = False

    def backward(self, *, set_to_none: bool = True) -> None:
        """Clear the gradients, and compute new ones from the next batch."""
        self.optimizer.zero_grad(set_to_none=set_to_none)
        self.made += 1
        draw = torch.Generator().manual_seed(SEED + self.made)
        batch = torch.randn(4, SIZE[1], generator=draw).to(self.device)
        # The forward pass alone, as is advised: neither backward nor an update belongs into it.
        with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16, enabled=self.autocast):
            loss = self.module(batch).float().square().mean()
        loss.backward()

    def update(self) -> None:
        """Make one step of the optimizer with the gradients that are there."""
        stepped(self.optimizer, torch.device(self.device), closes=step_needs_closure(self.optimizer))

    def train(self, steps: int = HISTORY, *, set_to_none: bool = True) -> None:
        """So many steps."""
        for _ in range(steps):
            self.backward(set_to_none=set_to_none)
            self.update()


def training(bench: Bench, module: Callable[[], nn.Module]) -> Training:
    """A new module, the same at every call, with a new optimizer over its parameters.

    UnsuitableError where the optimizer takes no weights of two dimensions.
    """
    if bench.flat:
        raise UnsuitableError("it takes parameters of one dimension only, and the modules of this scenario have two")
    seed(torch.device(bench.device))
    made: Any = module().to(bench.device)
    KEPT_ALIVE.extend(made.parameters())
    return Training(made, bench.optimizer(list(made.parameters())), bench.device)


def buffers_of(module: nn.Module) -> list[torch.Tensor]:
    """Copies of all buffers."""
    return [one.detach().clone() for one in module.buffers()]


def any_changed(before: Iterable[torch.Tensor], after: Iterable[torch.Tensor]) -> bool:
    """Whether one of them has other values."""
    return any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))

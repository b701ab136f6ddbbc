"""What is told of a script that runs in this process, without a trace: everything is undone at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ckptcheck.state.naming import resolve
from ckptcheck.trace.script.listening import Listening
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers, members
from ckptcheck.trace.script.sections import Sections


class Told:
    """A listener that keeps what it is told, and the objects of a script as they are known."""

    def __init__(self) -> None:
        self.modules, self.optimizers, self.notes = Modules(), Optimizers(), Notes()
        self.sections = Sections(self.modules)
        self.inputs: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.losses: list[float] = []
        self.updates: list[str] = []
        self.clearings = 0

    def forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.modules.called(module)
        self.inputs.append((type(module).__name__, args, kwargs))

    def backward(self, loss: torch.Tensor) -> None:
        self.losses.append(loss.item())

    def before_update(self, optimizer: Any) -> None:
        self.optimizers.stepped(optimizer)
        self.updates.append(f"before {_name(optimizer)}")

    def after_update(self, optimizer: Any) -> None:
        self.updates.append(f"after {_name(optimizer)}")

    def before_clearing(self) -> None:
        self.clearings += 1

    @property
    def trained(self) -> list[torch.Tensor]:
        return [tensor for one in self.optimizers.all() for tensor in members(one)]

    @property
    def roots(self) -> dict[str, nn.Module]:
        return self.modules.roots(self.trained)

    @property
    def names(self) -> list[str]:
        return list(resolve(self.roots).parameters)

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        return self.sections.all(self.optimizers.all())


def _name(optimizer: Any) -> str:
    return type(optimizer).__qualname__.rpartition(".")[2]


@contextmanager
def listening() -> Iterator[Told]:
    told = Told()
    parts = (told.modules, told.optimizers, told.sections, Listening(told, told.modules, told.optimizers, told.notes))
    undo = [one.listen() for one in parts]
    try:
        yield told
    finally:
        for one in reversed(undo):
            one()


def train(model: nn.Module, optimizer: Any, steps: int = 1, **keywords: Any) -> None:
    """Plain steps on the same batch of two rows of three."""
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 3), **keywords).square().sum().backward()
        optimizer.step()

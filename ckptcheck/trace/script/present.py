"""The script's models and optimizers as they stand: looked up once a window, let go of between steps."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.optimizers import Optimizers, members
from ckptcheck.trace.script.sections import Sections
from ckptcheck.trace.subjects import Subjects


class Present:
    """`subjects` for sampling. Keeps models and optimizers alive from `renew` to `forget`, or from a first question."""

    def __init__(self, modules: Modules, optimizers: Optimizers, sections: Sections) -> None:
        self._modules = modules
        self._optimizers = optimizers
        self._now: list[Any] | None = None
        self._places: dict[int, int] = {}
        self._module_names: dict[int, str] | None = None
        self.subjects = Subjects(self._roots, self.optimizers, lambda: sections.all(self.optimizers()))

    def optimizers(self) -> list[Any]:
        """The optimizers in their order."""
        if self._now is None:
            self._now = self._optimizers.all()
            self._places = {id(one): place for place, one in enumerate(self._now)}
        return self._now

    def _roots(self) -> dict[str, nn.Module]:
        return self._modules.roots(tensor for one in self.optimizers() for tensor in members(one))

    def renew(self) -> None:
        """Look everything up anew: modules and parameters may have been replaced, optimizers made."""
        self.forget()
        self.subjects.refresh()

    def forget(self) -> None:
        """Let go of everything."""
        self._now = self._module_names = None
        self.subjects.forget()

    def place(self, optimizer: Any) -> int:
        """The place of an optimizer that has stepped."""
        optimizers = self.optimizers()
        place = self._places.get(id(optimizer))
        if place is None or optimizers[place] is not optimizer:
            self.renew()
            self.optimizers()
            place = self._places[id(optimizer)]
        return place

    def name(self, module: nn.Module) -> str:
        """The name of a module of the model; that of its class where it is none."""
        if self._module_names is None:
            self._module_names = self.subjects.names().names_of_modules
        return self._module_names.get(id(module), type(module).__name__)

    def trains(self, module: nn.Module) -> bool:
        """Whether a forward pass of the module is one of training: in training mode, with a trained parameter."""
        if not getattr(module, "training", True):
            return False
        trained = self._optimizers.held()
        return any(id(parameter) in trained for parameter in module.parameters())

    def untrained(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The parameters of the model that no optimizer holds, by name."""
        trained = self._optimizers.held()
        for name, parameter in self.subjects.names().parameters.items():
            if id(parameter) not in trained:
                yield name, parameter

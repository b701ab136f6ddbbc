"""The script's models and optimizers as they stand: looked up once a window, and watched between steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import torch
from torch import nn

from ckptcheck.state.naming import LiveNames, resolve
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.sections import Sections
from ckptcheck.trace.subjects import Subjects


@dataclass(frozen=True, slots=True)
class _Contents:
    """What an optimizer holds, without the optimizer."""

    param_groups: Any
    state: Any


@dataclass(frozen=True, slots=True)
class _Named:
    """Names as they were found, and from what. Keeps the tensors alive and no module."""

    tensors: LiveNames
    modules: "list[tuple[str, ref[nn.Module]]]"
    wrappers: "list[tuple[str, ref[nn.Module]]]"
    basis: Any

    @classmethod
    def of(cls, names: LiveNames, basis: Any) -> "_Named":
        """What is kept of names."""
        modules = [(name, ref(module)) for name, module in names.modules.items()]
        wrappers = [(name, ref(module)) for name, module in names.wrappers]
        return cls(replace(names, modules={}, wrappers=()), modules, wrappers, basis)

    def names(self) -> LiveNames:
        """The names, with the modules."""
        modules = {name: module for name, one in self.modules if (module := one()) is not None}
        wrappers = tuple((name, module) for name, one in self.wrappers if (module := one()) is not None)
        return replace(self.tensors, modules=modules, wrappers=wrappers)


class Present:
    """`subjects` for sampling.

    Keeps models and optimizers alive from `renew`, or a first question, to `loosen`. From there to the next `renew` it
    keeps their tensors only, and calls `leaving` when one of them is about to die: what the last step of a script
    leaves can then still be sampled, after which `forget` lets go of everything.
    """

    def __init__(
        self, modules: Modules, optimizers: Optimizers, sections: Sections, leaving: Callable[[], None]
    ) -> None:
        self._modules = modules
        self._optimizers = optimizers
        self._leaving = leaving
        self._now: list[Any] | None = None
        self._places: dict[int, int] = {}
        self._module_names: dict[int, str] | None = None
        self._last_roots: list[ref[nn.Module]] = []
        self._named: _Named | None = None
        self._loose: list[ref[Any]] = []
        """The optimizers in their order, while they are not kept alive."""
        self._watched: list[ref[Any]] = []
        self.subjects = Subjects(self._roots, self.optimizers, lambda: sections.all(self._alive()))

    def optimizers(self) -> list[Any]:
        """The optimizers in their order, or what they hold."""
        if self._now is None:
            self._now = self._optimizers.all()
            self._places = {id(one): place for place, one in enumerate(self._now)}
        return self._now

    def _alive(self) -> list[Any]:
        if self._loose:
            return [one for known in self._loose if (one := known()) is not None]
        return self.optimizers()

    def _roots(self) -> dict[str, nn.Module]:
        roots = self._modules.roots(
            tensor for one in self.optimizers() for group in one.param_groups for tensor in group["params"]
        )
        self._last_roots = [ref(one) for one in roots.values()]
        return roots

    def renew(self) -> None:
        """Look everything up anew: modules and parameters may have been replaced, optimizers made."""
        self._let_go()
        self._modules.look_again()
        roots = self._roots()
        basis = [(prefix, id(root)) for prefix, root in roots.items()], self._modules.contents()
        named = self._named
        if named is None or named.basis != basis:
            self.subjects.forget()
            named = self._named = _Named.of(resolve(roots), basis)
        self.subjects.name(named.names())

    def loosen(self) -> None:
        """Keep no module and no optimizer alive, and notice when one dies."""
        if self._loose:
            return
        optimizers = self.optimizers()
        self._modules.look_again()
        self.subjects.name(replace(self.subjects.names(), modules={}, wrappers=()))
        roots = [one for known in self._last_roots if (one := known()) is not None]
        self._loose = [ref(one) for one in optimizers]
        self._now = [_Contents(one.param_groups, getattr(one, "state", {})) for one in optimizers]
        self._module_names = None
        self._watched = [ref(one, self._dies) for one in (*roots, *optimizers)]

    def _dies(self, _: Any) -> None:
        if self._loose:
            self._leaving()

    def forget(self) -> None:
        """Let go of everything."""
        self._let_go()
        self._named = None
        self.subjects.forget()

    def _let_go(self) -> None:
        self._now = self._module_names = None
        self._loose, self._watched = [], []

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
        return self._names().get(id(module), type(module).__name__)

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of the model, as it was last looked up."""
        return id(module) in self._names()

    def _names(self) -> dict[int, str]:
        if self._module_names is None:
            self._module_names = self.subjects.names().names_of_modules
        return self._module_names

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

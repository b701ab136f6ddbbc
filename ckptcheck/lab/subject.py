"""What is probed: a class of optimizers, and how one of it is made."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

import torch

from ckptcheck.errors import TargetError

HOW_TO_NAME: Final = "name a class of torch.optim, path/to/file.py:Class or package.module:Class"


@dataclass(frozen=True, slots=True)
class Subject:
    """An optimizer's class, or a function of parameters that makes one; `arguments` go to every one that is made."""

    name: str
    make: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def takes(self, argument: str) -> bool:
        """Whether it has an argument of this name."""
        return argument in parameters_of(self.make)

    @property
    def sparse(self) -> bool:
        """Whether it wants sparse gradients."""
        return self.make is torch.optim.SparseAdam

    @property
    def of_torch(self) -> bool:
        """Whether it is one of torch.optim."""
        return self.make in set(torch_classes().values())

    def made(self, groups: Iterable[Any], **more: Any) -> Any:
        """One over these parameters or groups. What the constructor raises passes through."""
        return self.make(list(groups), **{**self.arguments, **more})


def torch_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """Every class of torch.optim by name, without the one that all derive from."""
    return {
        name: one for name, one in sorted(vars(torch.optim).items())
        if isinstance(one, type) and issubclass(one, torch.optim.Optimizer) and one is not torch.optim.Optimizer
    }  # fmt: skip


def torch_subject(name: str, arguments: Mapping[str, Any]) -> Subject:
    """The class of torch.optim with this name. TargetError for a name that is none, with the nearest one."""
    classes = torch_classes()
    if name not in classes:
        folded = {one.lower(): one for one in classes}
        near = get_close_matches(name.lower(), folded, n=1)
        hint = f"did you mean {folded[near[0]]}" if near else f"it has {', '.join(classes)}"
        raise TargetError(f"torch.optim has no class {name!r}: {hint}; {HOW_TO_NAME}")
    return Subject(name, classes[name], arguments)


def step_needs_closure(optimizer: Any) -> bool:
    """Whether `step` cannot be called without a closure."""
    closure = parameters_of(optimizer.step).get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def parameters_of(called: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters that something callable takes; none where that cannot be known."""
    try:
        return inspect.signature(called).parameters
    except (TypeError, ValueError):
        return {}

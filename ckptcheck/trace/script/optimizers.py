"""The optimizers of a script, in a fixed order: those that have stepped, then those that were made."""

from collections.abc import Callable, Iterator
from typing import Any
from weakref import ref

import torch
from torch.optim.optimizer import Optimizer

from ckptcheck.trace.script.wrapping import tell_after


class Optimizers:
    """Knows every optimizer made or seen stepping since `listen`, without keeping any alive."""

    def __init__(self) -> None:
        self._made: dict[int, ref[Any]] = {}
        self._stepped: dict[int, ref[Any]] = {}

    def listen(self) -> Callable[[], None]:
        """Know every optimizer that is made from here on; returns what undoes it."""
        return tell_after(Optimizer, "__init__", self._add)

    def _add(self, optimizer: Any) -> None:
        self._made[id(optimizer)] = ref(optimizer)

    def stepped(self, optimizer: Any) -> None:
        """Note that an optimizer is about to update."""
        known = self._stepped.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._stepped[id(optimizer)] = ref(optimizer)

    def all(self) -> list[Any]:
        """The optimizers in their order. One that never stepped and shares parameters with one that did is left out."""
        stepped = [one for known in self._stepped.values() if (one := known()) is not None]
        touched = {id(tensor) for one in stepped for tensor in members(one)}
        made = [one for known in self._made.values() if (one := known()) is not None]
        waiting = [
            one for one in made
            if not any(one is other for other in stepped) and not any(id(tensor) in touched for tensor in members(one))
        ]  # fmt: skip
        return [*stepped, *waiting]


def members(optimizer: Any) -> Iterator[torch.Tensor]:
    """The tensors in an optimizer's groups."""
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]

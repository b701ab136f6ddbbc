"""The optimizers of a script, in the order in which they were made, so that two runs of a script number them alike."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import torch
from torch.optim.optimizer import Optimizer

from ckptcheck.trace.script.wrapping import tell_after


@dataclass(slots=True)
class _Known:
    """One optimizer. `made` and `stepped` count what happened in the process; `stepped` is None before it steps.

    `found` says that it was not seen being made, and so is older than `made`.
    """

    optimizer: Callable[[], Any]
    made: int
    found: bool
    first_stepped: int | None = None
    last_stepped: int | None = None


@dataclass(slots=True)
class Optimizers:
    """Knows every optimizer made or seen stepping since `listen`, without keeping any alive.

    `changes` counts how often one was added.
    """

    changes: int = 0
    _known: list[_Known] = field(default_factory=list)
    _clock: int = 0
    _latest_step: int = 0

    def listen(self) -> Callable[[], None]:
        """Know every optimizer that is made from here on; returns what undoes it."""
        return tell_after(Optimizer, "__init__", lambda one: self.add(one, found=False))

    def add(self, optimizer: Any, *, found: bool = True) -> None:
        """Know an optimizer; it comes after those that are known."""
        if self._entry(optimizer) is None:
            self.changes += 1
            self._clock += 1
            self._known.append(_Known(ref(optimizer, self._forget), self._clock, found))

    def is_fresh(self, optimizer: Any) -> bool:
        """Whether an optimizer was made after the last update of any other, and has made none."""
        known = self._entry(optimizer)
        fresh = known is not None and not known.found and known.first_stepped is None
        return fresh and known is not None and self._latest_step < known.made

    def _forget(self, gone: Any) -> None:
        self._known = [one for one in self._known if one.optimizer is not gone]

    def _entry(self, optimizer: Any) -> _Known | None:
        return next((one for one in self._known if one.optimizer() is optimizer), None)

    def stepped(self, optimizer: Any) -> None:
        """Note that an optimizer is about to update."""
        self.add(optimizer)
        known = self._entry(optimizer)
        assert known is not None
        self._clock += 1
        known.last_stepped = self._latest_step = self._clock
        if known.first_stepped is None:
            known.first_stepped = self._clock

    def alive(self) -> list[Any]:
        """Every known optimizer."""
        return [one for known in list(self._known) if (one := known.optimizer()) is not None]

    def held(self) -> set[int]:
        """The identities of the tensors that known optimizers hold."""
        return {id(tensor) for one in self.alive() for tensor in members(one)}

    def all(self) -> list[Any]:
        """The optimizers that train, in the order in which they were made.

        Left out are those that another one has taken the place of: made after their last update, it has stepped. Left
        out are also those that never stepped and share parameters with one that did. At the end come those that wrap
        another one, which steps for them, and keep state of their own.
        """
        alive = [(known, one) for known in list(self._known) if (one := known.optimizer()) is not None]
        latest = max((known.made for known, _ in alive if known.first_stepped is not None), default=0)
        stepped = [one for known, one in alive if known.last_stepped is not None and known.last_stepped > latest]
        waiting = [one for known, one in alive if known.first_stepped is None]
        touched = {id(tensor) for one in stepped for tensor in members(one)} if waiting else set()
        around = [one for one in waiting if wrapped(one)]
        left_out = {id(one) for one in waiting if _holds_any(one, touched)} | {id(one) for one in around}
        counting = {id(one) for one in (*stepped, *waiting)} - left_out
        return [
            *(one for _, one in alive if id(one) in counting),
            *(one for one in around if _own_state(one, wrapped(one))),
        ]


def _holds_any(optimizer: Any, tensors: set[int]) -> bool:
    return any(id(tensor) in tensors for tensor in members(optimizer))


def _own_state(optimizer: Any, inner: list[Any]) -> Any:
    state = vars(optimizer).get("state")
    return None if any(state is vars(one).get("state") for one in inner) else state


def wrapped(optimizer: Any) -> list[Any]:
    """The optimizers that an optimizer keeps among its attributes and that hold some of its parameters."""
    found = [
        one
        for value in getattr(optimizer, "__dict__", {}).values()
        for one in (value if type(value) in (list, tuple) else (value,))
        if isinstance(one, Optimizer) and one is not optimizer
    ]
    own = {id(tensor) for tensor in members(optimizer)} if found else set()
    return [one for one in found if any(id(tensor) in own for tensor in members(one))]


def members(optimizer: Any) -> Iterator[torch.Tensor]:
    """The tensors in an optimizer's groups."""
    groups = getattr(optimizer, "param_groups", None)
    for group in groups if isinstance(groups, list | tuple) else ():
        yield from group["params"]

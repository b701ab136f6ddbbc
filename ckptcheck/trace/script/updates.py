"""Which calls of `step` are updates: the outermost one of an optimizer, and the inner one where it wraps another."""

from typing import Any, Protocol

from ckptcheck.trace.outermost import is_outermost
from ckptcheck.trace.script.optimizers import Optimizers, wrapped


class Updating(Protocol):
    """Who hears of updates."""

    def before_update(self, optimizer: Any) -> None:
        """An update is about to happen."""

    def after_update(self, optimizer: Any) -> None:
        """An update has happened."""


class Updates:
    """From steps that begin and end to updates, each told once."""

    def __init__(self, listener: Updating, optimizers: Optimizers) -> None:
        self._listener = listener
        self._optimizers = optimizers
        self._told = 0
        self._around: dict[int, int] = {}

    def before(self, optimizer: Any, told: Any = None) -> None:
        """A step begins; `told` is what stands for the optimizer where it lacks groups of its own."""
        if not is_outermost(optimizer):
            return
        if wrapped(optimizer):
            self._optimizers.add(optimizer)
            self._around[id(optimizer)] = self._told
            return
        self._told += 1
        self._listener.before_update(optimizer if told is None else told)

    def after(self, optimizer: Any, told: Any = None) -> None:
        """A step has returned."""
        if not is_outermost(optimizer):
            return
        told = optimizer if told is None else told
        before = self._around.pop(id(optimizer), None)
        if before is not None:
            if before != self._told:
                return
            # It only borrows from the one it keeps, and has updated by itself; its values were still readable then.
            self._told += 1
            self._listener.before_update(told)
        self._listener.after_update(told)

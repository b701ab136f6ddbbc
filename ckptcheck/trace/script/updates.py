"""Which calls of `step` are updates: the outermost one of an optimizer, and the inner one where it wraps another."""

import sys
from types import FrameType
from typing import Any, Final, Protocol

from torch.optim.optimizer import Optimizer

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
        if not _is_outermost(optimizer):
            return
        if wrapped(optimizer):
            self._optimizers.add(optimizer)
            self._around[id(optimizer)] = self._told
            return
        self._told += 1
        self._listener.before_update(optimizer if told is None else told)

    def after(self, optimizer: Any, told: Any = None) -> None:
        """A step has returned."""
        if not _is_outermost(optimizer):
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


def _is_outermost(optimizer: Any) -> bool:
    """Whether this is not a step inside the optimizer's own step, as where a subclass calls `super().step()`.

    Read off the call stack: a count would go wrong where a step raises and its caller goes on.
    """
    frame: FrameType | None = sys._getframe(1)
    steps = 0
    while frame is not None:
        if frame.f_code in STEP_CODES and frame.f_locals.get("self") is optimizer:
            steps += 1
        frame = frame.f_back
    return steps < 2


def _noop() -> None: ...


STEP_CODES: Final = {Optimizer.profile_hook_step(_noop).__code__}
"""The code of the wrapper that torch puts around every optimizer's `step`, and of ours around others."""

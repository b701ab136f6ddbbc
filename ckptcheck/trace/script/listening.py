"""Listening to a script that knows nothing of it: forward passes, losses, updates, gradients about to be cleared."""

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ckptcheck.trace.hooks import is_outermost
from ckptcheck.trace.script.wrapping import tell_before


class Listener(Protocol):
    """What is told of a script, as it happens."""

    def forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The outermost module of a call is entered while gradients are enabled."""

    def backward(self, loss: torch.Tensor) -> None:
        """`backward` is about to run on a tensor."""

    def before_update(self, optimizer: Any) -> None:
        """An optimizer's outermost `step` begins."""

    def after_update(self, optimizer: Any) -> None:
        """An optimizer's outermost `step` has returned."""

    def before_clearing(self) -> None:
        """Gradients are about to be cleared or added to."""


class Listening:
    """All hooks on a script. `listen` puts them in place; what it returns takes every one of them away."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._outermost: int | None = None

    def listen(self) -> Callable[[], None]:
        """Begin; returns what undoes it."""
        undo = [
            register_module_forward_pre_hook(self._enter).remove,
            register_module_forward_hook(self._leave, always_call=True).remove,
            register_optimizer_step_pre_hook(self._before).remove,
            register_optimizer_step_post_hook(self._after).remove,
            self._wrap_backward(),
            tell_before(Optimizer, "zero_grad", self._clearing),
            tell_before(nn.Module, "zero_grad", self._clearing),
        ]
        return lambda: [one() for one in undo] and None

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        if self._outermost is None:
            self._outermost = id(module)
            if torch.is_grad_enabled():
                # Hooks on all modules are given no keyword arguments; they stand in the calling frame of torch.
                kwargs = sys._getframe(1).f_locals.get("kwargs", {})
                self._listener.forward(module, args, kwargs)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._outermost == id(module):
            self._outermost = None

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_outermost(optimizer):
            self._listener.before_update(optimizer)

    def _after(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_outermost(optimizer):
            self._listener.after_update(optimizer)

    def _clearing(self, *_: Any, **__: Any) -> None:
        self._listener.before_clearing()

    def _wrap_backward(self) -> Callable[[], None]:
        # Tensor.backward looks torch.autograd.backward up at each call, so this one place sees both.
        original = torch.autograd.backward
        listener = self._listener

        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Iterator):
                tensors = tuple(tensors)
            listener.before_clearing()
            for loss in (tensors,) if isinstance(tensors, torch.Tensor) else tensors:
                if isinstance(loss, torch.Tensor):
                    listener.backward(loss)
            return original(tensors, *args, **kwargs)

        torch.autograd.backward = backward

        def undo() -> None:
            if torch.autograd.backward is backward:
                torch.autograd.backward = original

        return undo

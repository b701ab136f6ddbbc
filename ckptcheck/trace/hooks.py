"""Listening to a training step: updates, what enters the model, losses, hand-made gradients. Undone on exit."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ckptcheck.trace.subjects import Subjects


class Listener(Protocol):
    """What the hooks tell of a step, as it happens."""

    def before_update(self, optimizer: Any) -> None:
        """An optimizer's outermost `step` begins."""

    def after_update(self, optimizer: Any) -> None:
        """An optimizer's outermost `step` has returned."""

    def forward(self, module: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The outermost module of a call is entered."""

    def backward(self, loss: torch.Tensor) -> None:
        """`backward` is called on a tensor."""

    def gradient(self, parameter: torch.Tensor) -> None:
        """A gradient was accumulated into a parameter that no optimizer holds."""


MAX_NESTING: Final = 16
"""An optimizer's step inside its own step is one update; deeper nesting than this is a leak, and is reset."""


class Hooks(AbstractContextManager["Hooks"]):
    """All hooks of one recording. Enter to listen, leave to undo every one of them.

    Costs a few microseconds per call of a module and of an optimizer; keeps no tensor.
    """

    def __init__(self, subjects: Subjects, listener: Listener) -> None:
        self._subjects = subjects
        self._listener = listener
        self._undo = ExitStack()
        self._nesting: dict[int, int] = {}
        self._outermost: nn.Module | None = None
        self._hooked: dict[int, nn.Module] = {}
        self._hand_made: dict[int, torch.Tensor] = {}

    def __enter__(self) -> "Hooks":
        self._undo.callback(register_optimizer_step_pre_hook(self._before).remove)
        self._undo.callback(register_optimizer_step_post_hook(self._after).remove)
        self._undo.callback(self._wrap_backward())
        self.renew()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()
        self._hooked.clear()
        self._hand_made.clear()

    def renew(self) -> None:
        """Begin a step: forget what an exception left behind, and listen to modules and parameters that are new."""
        self._nesting.clear()
        self._outermost = None
        for name, module in self._subjects.names().modules.items():
            if self._hooked.get(id(module)) is not module:
                self._listen_to(module, name)
        if not self._subjects.optimizers():
            for parameter in self._subjects.names().parameters.values():
                if (
                    parameter.requires_grad
                    and parameter.is_leaf
                    and self._hand_made.get(id(parameter)) is not parameter
                ):
                    self._hand_made[id(parameter)] = parameter
                    handle = parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                        self._listener.gradient
                    )
                    self._undo.callback(handle.remove)

    def _listen_to(self, module: nn.Module, name: str) -> None:
        self._hooked[id(module)] = module

        def enter(entered: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            # Inside torch.compile this is a constant, so that the graph is not broken.
            if self._outermost is None and not torch.compiler.is_compiling():
                self._outermost = entered
                self._listener.forward(name, args, kwargs)

        def leave(left: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self._outermost is left:
                self._outermost = None

        self._undo.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        self._undo.callback(module.register_forward_hook(leave, always_call=True).remove)

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        depth = self._nesting.get(id(optimizer), 0)
        self._nesting[id(optimizer)] = depth + 1 if depth < MAX_NESTING else 1
        if depth == 0:
            self._listener.before_update(optimizer)

    def _after(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        depth = self._nesting.get(id(optimizer), 1) - 1
        self._nesting[id(optimizer)] = depth
        if depth == 0:
            self._listener.after_update(optimizer)

    def _wrap_backward(self) -> Callable[[], None]:
        # Tensor.backward looks torch.autograd.backward up at each call, so this one place sees both.
        original = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling():
                for loss in (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors):
                    self._listener.backward(loss)
            return original(tensors, *args, **kwargs)

        torch.autograd.backward = backward

        def undo() -> None:
            torch.autograd.backward = original

        return undo

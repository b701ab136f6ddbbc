"""Listening to a training step: updates, what enters the model, losses, hand-made gradients. Undone on exit."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ckptcheck.trace.outermost import is_outermost
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


class Hooks(AbstractContextManager["Hooks"]):
    """All hooks of one recording. Enter to listen, leave to undo every one of them.

    Costs a few microseconds per call of a module and of an optimizer; keeps no tensor. Under torch.compile the
    graph of a model stays whole, and its inputs are seen where the compiled module is entered; they are not seen
    of `module.compile()` and of a compiled function that calls the model. A compiled `optimizer.step` is told
    of, which breaks its graph around the step: one compiled with `fullgraph=True` raises.
    """

    def __init__(self, subjects: Subjects, listener: Listener) -> None:
        self._subjects = subjects
        self._listener = listener
        self._undo = ExitStack()
        self._outermost: int | None = None
        self._everywhere: list[Callable[[], None]] = []
        self._apart = False
        self._hooked: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
        self._hand_made: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()

    def __enter__(self) -> "Hooks":
        try:
            self.renew()
        except BaseException:
            self._undo_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo_all()

    def _undo_all(self) -> None:
        for undo in self._everywhere:
            undo()
        self._everywhere.clear()
        self._undo.close()
        self._hooked.clear()
        self._hand_made.clear()

    def renew(self) -> None:
        """Begin a step: forget what an exception left behind, and listen to modules and parameters that are new."""
        self._outermost = None
        if not self._everywhere or _dynamo_is_loaded() > self._apart:
            self._listen_everywhere()
        names = self._subjects.names()
        for name, module in (*names.wrappers, *names.modules.items()):
            if self._hooked.get(id(module)) is not module:
                self._listen_to(module, name)
        held = {id(tensor) for optimizer in self._subjects.optimizers() for tensor in _members(optimizer)}
        for parameter in names.parameters.values():
            if id(parameter) not in held and self._hand_made.get(id(parameter)) is not parameter:
                self._listen_to_gradient(parameter)

    def _listen_everywhere(self) -> None:
        """Listen to every optimizer and every `backward` of the process, apart from what torch.compile traces."""
        for undo in self._everywhere:
            undo()
        self._apart = _dynamo_is_loaded()
        apart: Callable[[Any], Any] = torch.compiler.disable if self._apart else lambda hook: hook
        self._everywhere[:] = [
            register_optimizer_step_pre_hook(apart(self._before)).remove,
            register_optimizer_step_post_hook(apart(self._after)).remove,
            self._wrap_backward(apart),
        ]

    def _listen_to_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.requires_grad and parameter.is_leaf and not is_lazy(parameter):
            self._hand_made[id(parameter)] = parameter
            hook = self._listener.gradient
            handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            self._undo.callback(handle.remove)

    def _listen_to(self, module: nn.Module, name: str) -> None:
        self._hooked[id(module)] = module

        # Inside torch.compile the first line of both is a constant, so that the graph is neither broken nor guarded.
        def enter(entered: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if torch.compiler.is_compiling():
                return
            if self._outermost is None:
                self._outermost = id(entered)
                self._listener.forward(name, args, kwargs)

        def leave(left: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            if self._outermost == id(left):
                self._outermost = None

        self._undo.callback(module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        self._undo.callback(module.register_forward_hook(leave, always_call=True).remove)

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_outermost(optimizer):
            self._listener.before_update(optimizer)

    def _after(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_outermost(optimizer):
            self._listener.after_update(optimizer)

    def _wrap_backward(self, apart: Callable[[Any], Any]) -> Callable[[], None]:
        # Tensor.backward looks torch.autograd.backward up at each call, so this one place sees both.
        original = torch.autograd.backward
        listening = [self._listener]

        @apart
        def tell(tensors: Any) -> None:
            for loss in (tensors,) if isinstance(tensors, torch.Tensor) else tensors:
                if isinstance(loss, torch.Tensor):  # it may be an edge of the graph
                    listening[0].backward(loss)

        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(tensors, Iterator):
                tensors = tuple(tensors)
            if listening:
                tell(tensors)
            return original(tensors, *args, **kwargs)

        torch.autograd.backward = backward

        def undo() -> None:
            listening.clear()
            if torch.autograd.backward is backward:  # else somebody has wrapped ours, which now only passes on
                torch.autograd.backward = original

        return undo


def _dynamo_is_loaded() -> bool:
    # Loading it takes seconds, and is for torch.compile to do.
    return "torch._dynamo" in sys.modules


def _members(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]

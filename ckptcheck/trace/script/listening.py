"""Listening to a script that knows nothing of it: forward passes, losses, updates, gradients about to be cleared."""

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ckptcheck.trace.script.apart import APART
from ckptcheck.trace.script.duck_typed import DuckTyped
from ckptcheck.trace.script.guard import GUARD
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.plainly import is_traced_by_mode
from ckptcheck.trace.script.updates import Updates
from ckptcheck.trace.script.wrapping import in_place, tell_after, tell_before


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


class _Here(threading.local):
    """Whether this thread is inside of a module."""

    inside = False


class Listening:
    """Everything that is put around a script. `listen` puts it in place; what it returns takes all of it away.

    Objects of the script stay as they are: nothing is hung on a module, an optimizer or a tensor, which a copy or a
    pickle would carry along. Hooks on all modules would do that too, but they see no keyword arguments, and
    torch.compile warns of them. Costs a fraction of a microsecond for each call of a module, and a few where it is
    the outermost. What torch.compile traces is passed over, and a module that it wraps is seen from outside.
    """

    def __init__(
        self, listener: Listener, modules: Modules, optimizers: Optimizers, notes: Notes | None = None
    ) -> None:
        self._listener = listener
        self._modules = modules
        self._optimizers = optimizers
        self._notes = notes or Notes()
        self._updates = Updates(self, optimizers)
        self._duck_typed = DuckTyped(modules, optimizers, self._updates, self._notes)
        self._here = _Here()
        self._hooks: list[Callable[[], None]] = []
        self._thread: int | None = None
        self._forwards = self._backwards = self._updated = 0

    def listen(self) -> Callable[[], None]:
        """Begin; returns what undoes it."""
        undo = [
            self._wrap_call(),
            self._wrap_backward(),
            tell_after(Optimizer, "__init__", lambda _: self._keep_apart()),
            tell_before(Optimizer, "zero_grad", self._clearing),
            tell_before(nn.Module, "zero_grad", self._clearing),
            self._duck_typed.listen(),
        ]
        APART.renewed()
        self._hook_updates()

        def stop() -> None:
            for one in (*undo, *self._hooks):
                one()
            self._hooks.clear()

        return stop

    def _keep_apart(self) -> None:
        """Have hooks that torch.compile does not trace, once it may."""
        if APART.renewed():
            for one in self._hooks:
                one()
            self._hook_updates()

    def _hook_updates(self) -> None:
        self._hooks[:] = [
            register_optimizer_step_pre_hook(APART(self._before)).remove,
            register_optimizer_step_post_hook(APART(self._after)).remove,
        ]

    # Forward passes.

    def _wrap_call(self) -> Callable[[], None]:
        original = nn.Module.__call__
        here = self._here
        listening = [self]
        is_compiling = torch.compiler.is_compiling

        # Where torch.compile traces this, the first condition is a constant, so that nothing is guarded.
        @wraps(original)
        def __call__(self: nn.Module, /, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
            if is_compiling() or here.inside or not listening:
                return original(self, *args, **kwargs)
            here.inside = True
            try:
                APART.tell(listening[0]._enter, self, args, kwargs)
                return original(self, *args, **kwargs)
            finally:
                here.inside = False

        return in_place(nn.Module, "__call__", __call__, listening)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._keep_apart()
        if not self._is_training(module):
            return
        if not torch.is_grad_enabled():
            if not self._updated:  # later on it may be an evaluation, which a resumed run need not have done
                self._modules.called(module)
            return
        self._duck_typed.before_forward()
        self._forwards += 1
        self._listener.forward(module, args, kwargs)

    def _is_training(self, module: nn.Module) -> bool:
        """Whether a call from outside of all modules belongs to training, and is no recomputation and no tracing."""
        return not (
            torch._C._current_graph_task_id() != -1  # a checkpointed forward pass is done again in backward
            or module.__dict__.get("_is_replica")
            or self._is_elsewhere()
            or _is_traced()
            or _is_made_by_dynamo(module)
        )

    def _is_elsewhere(self) -> bool:
        """Whether this is another thread than the one that updates."""
        return self._thread is not None and self._thread != threading.get_ident()

    # Losses.

    def _wrap_backward(self) -> Callable[[], None]:
        # Tensor.backward looks torch.autograd.backward up at each call, so this one place sees both.
        original = torch.autograd.backward
        listening = [self]

        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not listening:
                return original(tensors, *args, **kwargs)
            if isinstance(tensors, Iterator):
                tensors = tuple(tensors)
            APART.tell(listening[0]._tell_backward, tensors)
            result = original(tensors, *args, **kwargs)
            if listening:
                APART.tell(listening[0]._after_backward)
            return result

        return in_place(torch.autograd, "backward", backward, listening)

    def _tell_backward(self, tensors: Any) -> None:
        if self._is_elsewhere() or torch._C._current_graph_task_id() != -1:
            return  # as a reentrant checkpoint does within backward
        self._listener.before_clearing()
        for loss in (tensors,) if isinstance(tensors, torch.Tensor) else tensors:
            if isinstance(loss, torch.Tensor):  # it may be an edge of the graph
                self._backwards += 1
                self._listener.backward(loss)

    def _after_backward(self) -> None:
        if not self._is_elsewhere() and torch._C._current_graph_task_id() == -1:
            self._duck_typed.after_backward()

    # Updates.

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        GUARD.run(self._updates.before, optimizer)

    def _after(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        GUARD.run(self._updates.after, optimizer)

    def before_update(self, optimizer: Any) -> None:
        """An update is about to happen."""
        if self._thread is None and torch._C._current_graph_task_id() == -1:
            self._thread = threading.get_ident()
        self._listener.before_update(optimizer)

    def after_update(self, optimizer: Any) -> None:
        """An update has happened."""
        self._updated += 1
        if self._updated == 1:
            if not self._forwards:
                self._notes.say("Inputs are not seen: the model is called inside of what torch.compile has compiled.")
            if not self._backwards:
                self._notes.say("Losses are not seen: gradients come without a call of backward.")
        self._listener.after_update(optimizer)

    def _clearing(self, *_: Any, **__: Any) -> None:
        if not self._is_elsewhere():
            self._listener.before_clearing()


def _is_traced() -> bool:
    """Whether tensors stand for others: under torch.jit.trace, torch.export, make_fx or FakeTensorMode."""
    return torch._C._get_tracing_state() is not None or is_traced_by_mode()


def _is_made_by_dynamo(module: nn.Module) -> bool:
    """Whether a module is the graph of something compiled."""
    return isinstance(module, torch.fx.GraphModule) and "compile_subgraph_reason" in module.__dict__

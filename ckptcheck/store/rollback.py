"""What live objects were before a load, noted just before each of them is touched."""

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_CONTAINERS = (dict, list, set, deque)


class Undo:
    """Notes what is about to change, and puts it all back in reverse order.

    Holds a copy, on the CPU, of every tensor that was noted: for a model one more model's size while it loads.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[str, Callable[[], None]]] = []
        self._noted: dict[int, Any] = {}

    def add(self, what: str, step: Callable[[], None]) -> None:
        """Note a step that puts something back; `what` names it for messages."""
        self._steps.append((what, step))

    def restore(self) -> list[str]:
        """Put everything back as far as it goes; what could not be put back is told in words.

        An interrupt meanwhile is raised when the rest has been put back.
        """
        troubles, interrupt = [], None
        while self._steps:
            what, step = self._steps.pop()
            try:
                step()
            except BaseException as trouble:  # noqa: BLE001 - from a user's load_state_dict, and the rest must go on
                troubles.append(f"{what}: {type(trouble).__name__}: {one_line(trouble)}")
                interrupt = interrupt if isinstance(trouble, Exception) else trouble
        if interrupt is not None:
            raise interrupt
        return troubles

    def of_tensor(self, tensor: torch.Tensor) -> None:
        """Note a tensor's values."""
        if id(tensor) in self._noted or tensor.layout != torch.strided:
            return
        self._noted[id(tensor)] = tensor
        values = tensor.detach().to("cpu", copy=True)

        def put_back() -> None:
            with torch.no_grad():
                tensor.copy_(values)

        self.add("a tensor", put_back)

    def of_container(self, container: Any) -> None:
        """Note what a dict, list, set or deque holds, and what the containers and tensors in it hold."""
        if isinstance(container, torch.Tensor):
            self.of_tensor(container)
        elif isinstance(container, tuple):
            for item in container:
                self.of_container(item)
        elif isinstance(container, _CONTAINERS) and id(container) not in self._noted:
            self._noted[id(container)] = container
            self.add("a container", _refill(container))
            for item in container.values() if isinstance(container, dict) else container:
                self.of_container(item)

    def of_object(self, one: Any, what: str) -> None:
        """Note an object with a state_dict: its attributes, and what only its load_state_dict can put back.

        Not what its attributes hold: that may be a whole dataset.
        """
        if hasattr(one, "__dict__"):
            self.add(f"{what}'s attributes", _refill(vars(one)))
        before = copy.deepcopy(one.state_dict())
        self.add(f"{what}'s former state", lambda: _ignore(one.load_state_dict(before)))

    def of_optimizer(self, optimizer: Any) -> None:
        """Note an optimizer's groups and state; one that wraps another is an object like any other."""
        own = getattr(optimizer, "__dict__", {})
        if "param_groups" in own and "state" in own:
            self.of_container(own)
        else:
            self.of_object(optimizer, "the optimizer")

    def of_parameter(self, parameter: torch.Tensor) -> None:
        """Note a parameter's values, gradient and whether it is trained."""
        self.of_tensor(parameter)
        gradient, trained = parameter.grad, parameter.requires_grad
        if gradient is not None:
            self.of_tensor(gradient)

        def put_back() -> None:
            parameter.grad = gradient
            if parameter.requires_grad != trained:
                parameter.requires_grad_(trained)

        self.add("a gradient", put_back)

    def of_module(self, module: nn.Module) -> None:
        """Note which tensors are a module's buffers, and whether it trains."""
        buffers, training = dict(module._buffers), module.training

        def put_back() -> None:
            module._buffers.update(buffers)
            module.training = training

        self.add("a module", put_back)


def one_line(trouble: BaseException) -> str:
    """An exception's text without line breaks."""
    return " ".join(str(trouble).split())


def _refill(container: Any) -> Callable[[], None]:
    held = dict(container) if isinstance(container, dict) else list(container)

    def put_back() -> None:
        container.clear()
        container.extend(held) if isinstance(container, list | deque) else container.update(held)

    return put_back


def _ignore(result: Any) -> None:
    """A load_state_dict may return a report (missing keys) that nobody reads here."""

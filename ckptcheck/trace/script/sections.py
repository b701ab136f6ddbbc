"""Schedules and gradient scalers of a script."""

from collections.abc import Callable
from typing import Any
from weakref import ref

from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import LRScheduler

from ckptcheck.trace.script.wrapping import tell_after
from ckptcheck.trace.subjects import prefixed


class Sections:
    """Knows every schedule and scaler made since `listen`, without keeping any alive."""

    def __init__(self) -> None:
        self._schedules: dict[int, ref[Any]] = {}
        self._scalers: dict[int, ref[Any]] = {}

    def listen(self) -> Callable[[], None]:
        """Know every one that is made from here on; returns what undoes it."""
        undo = [
            tell_after(LRScheduler, "__init__", lambda one: self._schedules.update({id(one): ref(one)})),
            tell_after(GradScaler, "__init__", lambda one: self._scalers.update({id(one): ref(one)})),
        ]
        return lambda: [one() for one in undo] and None

    def all(self, optimizers: list[Any]) -> dict[str, dict[str, Any]]:
        """The schedules of these optimizers and the scalers that are in use, by section and prefix."""
        schedules = [one for known in self._schedules.values() if (one := known()) is not None]
        inner = {id(part) for one in schedules for part in getattr(one, "_schedulers", ())}
        ours = [
            one for one in schedules
            if id(one) not in inner and any(getattr(one, "optimizer", None) is optimizer for optimizer in optimizers)
        ]  # fmt: skip
        scalers = [one for known in self._scalers.values() if (one := known()) is not None and one.is_enabled()]
        parts = {"schedule": ours, "scaler": scalers}
        return {kind: prefixed(objects) for kind, objects in parts.items() if objects}

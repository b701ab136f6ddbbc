"""Schedules, gradient scalers and averages of a script."""

from collections.abc import Callable
from typing import Any
from weakref import ref

from torch.amp.grad_scaler import GradScaler
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, ReduceLROnPlateau, SequentialLR

from ckptcheck.trace.script.averages import Objects
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.optimizers import members
from ckptcheck.trace.script.wrapping import tell_after
from ckptcheck.trace.subjects import prefixed

_SCHEDULES = (LRScheduler, ReduceLROnPlateau, SequentialLR, ChainedScheduler)
"""Classes of torch's schedules that are made without another one's `__init__`."""
_WRAPPERS = 4
"""So deep an optimizer may be wrapped."""


class Sections:
    """Knows every schedule and scaler made since `listen`, and the averages among `modules`. Keeps none alive."""

    def __init__(self, modules: Modules | None = None) -> None:
        self._modules = modules
        self._averages = Objects()
        self._schedules: list[ref[Any]] = []
        self._scalers: list[ref[Any]] = []

    def listen(self) -> Callable[[], None]:
        """Know every one that is made from here on; returns what undoes it."""
        if self._modules is not None:
            self._modules.tell_made = self._averages.watch
        undo = [self._averages.leave]
        undo += [tell_after(kind, "__init__", self._add_schedule) for kind in _SCHEDULES]
        undo.append(tell_after(GradScaler, "__init__", lambda one: _add(self._scalers, one)))

        def stop() -> None:
            for one in undo:
                one()

        return stop

    def _add_schedule(self, schedule: Any) -> None:
        _add(self._schedules, schedule)

    def all(self, optimizers: list[Any]) -> dict[str, dict[str, Any]]:
        """The schedules of these optimizers, the scalers that are in use and the averages, by section and prefix."""
        schedules = [one for known in self._schedules if (one := known()) is not None]
        inner = {id(part) for one in schedules for part in vars(one).get("_schedulers", ())}
        ours = [one for one in schedules if id(one) not in inner and _is_of_any(one, optimizers)]
        scalers = [one for known in self._scalers if (one := known()) is not None and one.is_enabled()]
        parts = {"schedule": ours, "scaler": scalers, "ema": self._all_averages(optimizers)}
        return {kind: prefixed(objects) for kind, objects in parts.items() if objects}

    def _all_averages(self, optimizers: list[Any]) -> list[Any]:
        modules = self._modules
        if modules is None:
            return []
        trained = [tensor for one in optimizers for tensor in members(one)]
        return [*modules.averages(trained), *self._averages.all(lambda: modules.training(trained))]


def _add(known: list["ref[Any]"], one: Any) -> None:
    if not any(other() is one for other in known):
        known[:] = [other for other in known if other() is not None]
        known.append(ref(one))


def _is_of_any(schedule: Any, optimizers: list[Any]) -> bool:
    """Whether a schedule is of one of these optimizers, or of a wrapper around one as Accelerate has it."""
    one = vars(schedule).get("optimizer")
    for _ in range(_WRAPPERS):
        if any(one is optimizer for optimizer in optimizers):
            return True
        one = getattr(one, "__dict__", {}).get("optimizer")
    return False

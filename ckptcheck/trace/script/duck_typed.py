"""Optimizers that are no torch.optim.Optimizer, or never ran its constructor: found by what they hold."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from ckptcheck.trace.outermost import STEP_CODES
from ckptcheck.trace.script.apart import APART
from ckptcheck.trace.script.fields import fields_of, has, is_setting, weakly
from ckptcheck.trace.script.living import classes, objects
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.updates import Updates
from ckptcheck.trace.script.wrapping import code_of, in_place, tell_before

_LOOKS: Final = 6
"""How often everything alive is gone through at most, of which at most `_LOOKS_BEFORE` times before any gradient."""
_LOOKS_BEFORE: Final = 2


@dataclass(frozen=True, slots=True)
class _Missed:
    """A parameter that no optimizer is seen to hold: its name in its module, and which gradient it had when."""

    name: str
    gradient: tuple[int, int]


class DuckTyped:
    """Looks for such optimizers, once for each set of parameters that get gradients and that nobody known holds.

    Their classes' `step` is wrapped from then on; the objects stay as they are.
    """

    def __init__(self, modules: Modules, optimizers: Optimizers, updates: Updates, notes: Notes) -> None:
        self._modules = modules
        self._optimizers = optimizers
        self._updates = updates
        self._notes = notes
        self._before = -1
        self._seen = (-1, -1, -1)
        self._missed: dict[int, _Missed] = {}
        self._looked: set[int] = set()
        self._looks = 0
        self._stand_ins: dict[int, tuple[Callable[[], Any], Any]] = {}
        self._undo: dict[type, Callable[[], None]] = {}

    def listen(self) -> Callable[[], None]:
        """Know what schedules are made for, too; returns what undoes everything."""
        stop = tell_before(LRScheduler, "__init__", self._scheduled)

        def undo() -> None:
            stop()
            for one in self._undo.values():
                one()
            self._undo.clear()

        return undo

    def _scheduled(self, _: Any, optimizer: Any = None, *__: Any, **___: Any) -> None:
        # A schedule takes hold of the optimizer's `step` as it is now.
        fields = fields_of(optimizer)
        if isinstance(fields.get("param_groups"), list) and "_optimizer_step_pre_hooks" not in fields:
            self._optimizers.add(self._stand_in(optimizer))
            self._wrap(type(optimizer))

    def before_forward(self) -> None:
        """A window begins: where no optimizer is known at all, one that steps with a closure is found here."""
        if not self._optimizers.changes and self._before != self._modules.changes and self._looks < _LOOKS_BEFORE:
            self._before = self._modules.changes
            if not any(map(_is_foreign, classes())):
                return
            self._look({id(one) for _, _, one in self._modules.parameters() if one.requires_grad})

    def after_backward(self) -> None:
        """A backward has given gradients."""
        seen = (self._modules.changes, self._modules.calls, self._optimizers.changes)
        if seen == self._seen and not self._missed:
            return
        before, self._missed = self._missed, {}
        missed = self._unheld()
        if not missed.keys() <= self._looked and self._looks < _LOOKS:
            self._looked |= missed.keys()
            self._look(set(missed))
            missed = self._unheld()
        if before:
            # What stands still is left over, from a training that is done.
            self._note([one for key, one in missed.items() if before.get(key, one).gradient != one.gradient])
        elif seen != self._seen:
            self._missed = missed
        self._seen = seen

    def _note(self, missed: list["_Missed"]) -> None:
        names = sorted({one.name for one in missed})
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self._notes.say(
                f"{len(missed)} parameters get gradients and no optimizer is seen to hold them "
                f"({', '.join(names[:3])}{more}): their updates are not recorded as updates."
            )

    def _unheld(self) -> dict[int, "_Missed"]:
        held = self._optimizers.held()
        return {
            id(one): _Missed(f"{type(module).__name__}.{name}", (id(one.grad), one.grad._version))
            for module, name, one in self._modules.parameters()
            if id(one) not in held and one.is_leaf and one.grad is not None
        }

    def _look(self, wanted: set[int]) -> None:
        self._looks += 1
        found = [(first, one) for one in _steppers() if (first := _first_held(one, wanted)) is not None]
        order = {id(one): place for place, (_, _, one) in enumerate(self._modules.parameters())}
        for _, one in sorted(found, key=lambda pair: order.get(pair[0], len(order))):
            if not any(other is not one and _keeps(one, other) for _, other in found):
                self._optimizers.add(self._stand_in(one))
                self._wrap(type(one))

    def _stand_in(self, one: Any) -> Any:
        """What stands for an object in traces: itself, where it has groups of its own."""
        known = self._stand_ins.get(id(one))
        if known is not None and known[0]() is one:
            return known[1]
        key = id(one)
        alive = weakly(one, lambda _: self._stand_ins.pop(key, None))
        whole = isinstance(fields_of(one).get("param_groups"), list) and alive is not None
        stand_in = one if whole else type(type(one).__qualname__, (StandIn,), {})(one)
        if not whole:
            self._stand_ins[key] = (alive or (lambda: one), stand_in)
        return stand_in

    def _wrap(self, kind: type) -> None:
        if kind in self._undo:
            return
        original = kind.step  # type: ignore[attr-defined]
        listening = [self._updates]

        @wraps(original)
        def step(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not listening:
                return original(self, *args, **kwargs)
            updates, told = listening[0], stand_in(self)
            APART.run(updates.before, self, told)
            result = original(self, *args, **kwargs)
            APART.run(updates.after, self, told)
            return result

        stand_in = self._stand_in
        STEP_CODES.add(code_of(step))
        try:
            self._undo[kind] = in_place(kind, "step", step, listening)
        except TypeError:
            self._notes.say(f"The updates of {kind.__name__} are not seen: its class cannot be changed.")


class StandIn:
    """An optimizer without groups as one that has them: what it holds, read anew each time. Keeps it not alive."""

    def __init__(self, one: Any) -> None:
        self._one = weakly(one, None) or (lambda: one)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """One group, with the numbers that the optimizer has; its own groups where it has some."""
        fields = fields_of(self._one())
        if isinstance(fields.get("param_groups"), list):
            return list(fields["param_groups"])
        return [{"params": _members(fields)[1], **{key: one for key, one in fields.items() if is_setting(one)}}]

    @property
    def state(self) -> dict[Any, Any]:
        """What it keeps for each parameter, in lists as long as that of the parameters, and its other tensors."""
        fields = fields_of(self._one())
        name, members = _members(fields)
        state: dict[Any, Any] = {}
        for key, value in fields.items():
            if key in (name, "param_groups"):
                continue
            if isinstance(value, Mapping) and value and all(isinstance(one, torch.Tensor) for one in value):
                state.update(value)
            elif isinstance(value, list | tuple) and len(value) == len(members) and _holds_tensor(value):
                for tensor, one in zip(members, value, strict=True):
                    state.setdefault(tensor, {})[key] = one
            elif _holds_tensor(value):
                state[key] = {"": value} if isinstance(value, torch.Tensor) else value
        return state


def _steppers() -> list[Any]:
    """Everything alive that has a `step` and may be an optimizer."""
    return [one for one in objects(_may_optimize) if "_optimizer_step_pre_hooks" not in fields_of(one)]


def _may_optimize(kind: type) -> bool:
    if issubclass(kind, nn.Module | LRScheduler | StandIn | type):
        return False
    return has(kind, "step")


def _is_foreign(kind: type) -> bool:
    """Whether a class may optimize, and is none of torch's own, whose objects are known from their making on."""
    return kind.__module__.partition(".")[0] != "torch" and _may_optimize(kind)


def _first_held(one: Any, wanted: set[int]) -> int | None:
    """The first wanted parameter that an object holds in groups or in a list of its own."""
    fields = fields_of(one)
    groups = fields.get("param_groups")
    if not isinstance(groups, list) and not has(type(one), "zero_grad"):
        return None
    try:
        held = [id(one) for group in groups for one in group["params"]] if isinstance(groups, list) else None
    except (TypeError, KeyError):
        return None
    return next((key for key in (held if held is not None else map(id, _members(fields)[1])) if key in wanted), None)


def _members(fields: Mapping[str, Any]) -> tuple[str, list[torch.Tensor]]:
    """The attribute in which an object keeps parameters, and these: a list, or a dict by name."""
    for key, value in fields.items():
        held = list(value.values()) if isinstance(value, dict) else value
        if isinstance(held, list | tuple) and all(isinstance(one, torch.Tensor) for one in held) and any(
            one.requires_grad and one.is_leaf for one in held
        ):  # fmt: skip
            return key, list(held)
    return "", []


def _keeps(outer: Any, inner: Any) -> bool:
    return any(value is inner for value in fields_of(outer).values())


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_tensor(one) for one in value.values())
    return isinstance(value, torch.Tensor) or (
        isinstance(value, list | tuple) and any(isinstance(one, torch.Tensor) for one in value)
    )

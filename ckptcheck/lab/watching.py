"""A target's real steps with an eye on some of its parameters: what reaches them, what moves them, and when."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ckptcheck.experiment.run import Run
from ckptcheck.finding import Json
from ckptcheck.lab.bench import presence
from ckptcheck.lab.contract import NONE
from ckptcheck.lab.snapshot import Snapshot, state_of
from ckptcheck.state.naming import resolve
from ckptcheck.trace.subjects import as_list


@dataclass(frozen=True, slots=True)
class Watched:
    """A parameter of a target by its name, and the optimizer and group that hold it, None where none does.

    `keeper` is the optimizer that has state for it, whether in a group or not.
    """

    name: str
    parameter: torch.Tensor
    optimizer: Any = None
    group: int | None = None
    keeper: Any = None


@dataclass(slots=True)
class Seen:
    """What a step did to one parameter.

    `grads` are what each update found: "none", "zero" or "nonzero"; `reached` whether backward brought a gradient;
    `by_update` whether the value changed inside of an update, `param_changed` whether it changed at all;
    `state_by_update` and `state_changed` are the same of its state; `kept` are the keys of its state at the end, in
    whichever optimizer; `thawed` whether the step itself set `requires_grad` to True; `replaced` whether another
    parameter stands under its name after the step.
    """

    grads: list[str] = field(default_factory=list)
    reached: bool = False
    param_changed: bool = False
    by_update: bool = False
    state_by_update: bool = False
    thawed: bool = False
    replaced: bool = False
    state_changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    in_group: bool = False
    requires_grad: bool = False
    settings: dict[str, Json] = field(default_factory=dict)

    def breaks(self, contract: str) -> bool:
        """Whether the contract does not hold for this step."""
        return {
            "no-grad": self.reached,
            "no-update": self.param_changed,
            "hold": self.param_changed or bool(self.state_changed),
            "removed": self.in_group,
            "reset": bool(self.kept),
        }[contract]


def holders(run: Run, named: Sequence[tuple[str, torch.Tensor]]) -> list[Watched]:
    """The parameters with whatever holds them now."""
    found = []
    for name, parameter in named:
        held = ((one, group) for one in as_list(run.optimizer) for group, members in enumerate(one.param_groups)
                if any(own is parameter for own in members["params"]))  # fmt: skip
        optimizer, group = next(held, (None, None))
        keepers = (one for one in as_list(run.optimizer) if state_of(one, parameter))
        found.append(Watched(name, parameter, optimizer, group, optimizer or next(keepers, None)))
    return found


def _as_now(run: Run, named: Sequence[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """The same names with the parameters that stand under them now: a step may put another one in its place."""
    parameters = resolve(run.model).parameters
    return [(name, parameters.get(name, one)) for name, one in named]


def watched_steps(
    run: Run, named: Sequence[tuple[str, torch.Tensor]], steps: int, before_update: Callable[[], None] | None = None
) -> Iterator[tuple[int, str, Seen]]:
    """Make real steps, and tell of each step and parameter what it did. What the step raises passes through.

    `before_update` is called when an update begins, after the user's own hooks. A step costs a copy of the watched
    parameters and their state.
    """
    for step in range(1, steps + 1):
        watched = holders(run, _as_now(run, named))
        seen = {one.name: Seen(requires_grad=one.parameter.requires_grad) for one in watched}
        before = {one.name: _snapshot(one) for one in watched}
        with _Eyes(run, watched, seen, before_update):
            run.step(step)
        objects = {one.name: one.parameter for one in watched}
        for one in holders(run, _as_now(run, named)):
            told = seen[one.name]
            told.replaced = one.parameter is not objects[one.name]
            after = _snapshot(one)
            told.param_changed = not before[one.name].same_param(after)
            told.state_changed = before[one.name].changed_state(after)
            told.kept = tuple(after.state)
            told.in_group = one.group is not None
            yield step, one.name, told


def _snapshot(one: Watched) -> Snapshot:
    return Snapshot.of(one.keeper, one.parameter)


class _Eyes:
    """Hooks for one step, all of them gone when it is left."""

    def __init__(
        self, run: Run, watched: Sequence[Watched], seen: dict[str, Seen], before_update: Callable[[], None] | None
    ) -> None:
        self._watched, self._seen, self._before_update = watched, seen, before_update
        self._optimizers = [one for one in as_list(run.optimizer) if hasattr(one, "register_step_pre_hook")]
        self._handles: list[Any] = []
        self._values: dict[str, Snapshot] = {}
        self._grads = {one.name: _mark(one.parameter.grad) for one in watched}

    def __enter__(self) -> None:
        for one in self._watched:
            if one.parameter.requires_grad and one.parameter.is_leaf:
                told = self._seen[one.name]
                parameter: Any = one.parameter
                self._handles.append(parameter.register_hook(lambda grad, told=told: self._reached(grad, told)))
        for optimizer in self._optimizers:
            self._handles.append(optimizer.register_step_pre_hook(lambda own, *_: self._before(own)))
            self._handles.append(optimizer.register_step_post_hook(lambda own, *_: self._after(own)))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    @staticmethod
    def _reached(grad: torch.Tensor, told: Seen) -> None:
        del grad
        told.reached = True

    def _of(self, optimizer: Any) -> list[Watched]:
        return [one for one in self._watched if one.optimizer is optimizer]

    def _before(self, optimizer: Any) -> None:
        if self._before_update is not None:
            self._before_update()
        for one in self._of(optimizer):
            told = self._seen[one.name]
            told.grads.append(presence(one.parameter.grad))
            told.settings = _settings(one)
            if one.parameter.requires_grad and not told.requires_grad:
                told.thawed = True
                told.reached |= one.parameter.grad is not None and _mark(one.parameter.grad) != self._grads[one.name]
            self._values[one.name] = Snapshot.of(one.optimizer, one.parameter)

    def _after(self, optimizer: Any) -> None:
        for one in self._of(optimizer):
            before = self._values.pop(one.name, None)
            if before is None:
                continue
            after, told = Snapshot.of(one.optimizer, one.parameter), self._seen[one.name]
            told.by_update |= not before.same_param(after)
            told.state_by_update |= bool(before.changed_state(after))


def _mark(grad: torch.Tensor | None) -> tuple[int, int] | None:
    """What tells whether a gradient is still the one that it was; its tensor must be alive."""
    return None if grad is None else (id(grad), grad._version)


def _settings(one: Watched) -> dict[str, Json]:
    """Of its group, what decides what a zero gradient does; `state` names what is kept for it."""
    members = one.optimizer.param_groups[one.group]
    keys = ("lr", "weight_decay", "momentum", "betas", "lambd")
    told = {key: _number(members[key]) for key in keys if key in members}
    return {**told, "state": [*state_of(one.optimizer, one.parameter)]}


def _number(value: Any) -> Json:
    if isinstance(value, torch.Tensor):
        return float(value)
    return [float(one) for one in value] if isinstance(value, (list, tuple)) else value


def last_grad(seen: Seen) -> str:
    """What the last update of a step found, "none" where there was no update."""
    return seen.grads[-1] if seen.grads else NONE

"""A target's real steps with an eye on some of its parameters: what reaches them, what moves them, and when."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ckptcheck.experiment.run import Run
from ckptcheck.finding import Json
from ckptcheck.lab.bench import presence
from ckptcheck.lab.contract import NONE
from ckptcheck.lab.snapshot import Snapshot, same, state_of
from ckptcheck.trace.subjects import as_list


@dataclass(frozen=True, slots=True)
class Watched:
    """A parameter of a target by its name, and the optimizer and group that hold it, None where none does."""

    name: str
    parameter: torch.Tensor
    optimizer: Any = None
    group: int | None = None


@dataclass(slots=True)
class Seen:
    """What a step did to one parameter.

    `grads` are what each update found: "none", "zero" or "nonzero"; `reached` whether backward brought a gradient;
    `by_update` whether the value changed inside of an update, `param_changed` whether it changed at all; `kept` are
    the keys of its state at the end.
    """

    grads: list[str] = field(default_factory=list)
    reached: bool = False
    param_changed: bool = False
    by_update: bool = False
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
        found.append(Watched(name, parameter, *next(held, (None, None))))
    return found


def watched_steps(
    run: Run, named: Sequence[tuple[str, torch.Tensor]], steps: int, before_update: Callable[[], None] | None = None
) -> Iterator[tuple[int, str, Seen]]:
    """Make real steps, and tell of each step and parameter what it did. What the step raises passes through.

    `before_update` is called when an update begins, after the user's own hooks. A step costs a copy of the watched
    parameters and their state.
    """
    for step in range(1, steps + 1):
        watched = holders(run, named)
        seen = {one.name: Seen(requires_grad=one.parameter.requires_grad) for one in watched}
        before = {one.name: _snapshot(one) for one in watched}
        with _Eyes(run, watched, seen, before_update):
            run.step(step)
        for one in holders(run, named):
            told = seen[one.name]
            after = _snapshot(one)
            told.param_changed = not before[one.name].same_param(after)
            told.state_changed = before[one.name].changed_state(after)
            told.kept = tuple(after.state)
            told.in_group = one.optimizer is not None
            yield step, one.name, told


def _snapshot(one: Watched) -> Snapshot:
    return Snapshot.of(one.optimizer, one.parameter)


class _Eyes:
    """Hooks for one step, all of them gone when it is left."""

    def __init__(
        self, run: Run, watched: Sequence[Watched], seen: dict[str, Seen], before_update: Callable[[], None] | None
    ) -> None:
        self._watched, self._seen, self._before_update = watched, seen, before_update
        self._optimizers = [one for one in as_list(run.optimizer) if hasattr(one, "register_step_pre_hook")]
        self._handles: list[Any] = []
        self._values: dict[str, torch.Tensor] = {}

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
            self._values[one.name] = one.parameter.detach().clone()

    def _after(self, optimizer: Any) -> None:
        for one in self._of(optimizer):
            if one.name in self._values and not same(self._values.pop(one.name), one.parameter.detach()):
                self._seen[one.name].by_update = True


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

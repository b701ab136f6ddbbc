"""Twins of one optimizer: the same parameters, the same gradients, the same steps, so that one thing can differ."""

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import torch

from ckptcheck.experiment.raised import one_line
from ckptcheck.finding import Json
from ckptcheck.lab.contract import FOR, NONE, NONZERO, ZERO, Row
from ckptcheck.lab.entering import Entering
from ckptcheck.lab.snapshot import Snapshot, state_of
from ckptcheck.lab.subject import Subject, step_needs_closure
from ckptcheck.lab.variants import LEARNING_RATE, Variant, arguments_of

HISTORY: Final = 5
"""Steps with gradients that a twin has behind it."""
SEED: Final = 20
KEPT_ALIVE: Final[list[torch.Tensor]] = []
"""Every parameter that was made: an optimizer that keeps something by `id(p)` must not meet an id a second time."""
NO_FACTS: Final[Mapping[str, Json]] = MappingProxyType({})
_SHAPES: Final = {"p": (2, 3), "q": (3, 2)}
"""The parameter that is looked at, and one beside it that always has a gradient."""


class UnsuitableError(Exception):
    """A scenario cannot be tried with an optimizer like this; says why."""


class StepRaisedError(Exception):
    """A step of an optimizer raised; what it raised is the cause. Anything else that raises is no word of its step."""


def stepped(optimizer: Any, device: torch.device, *, closes: bool) -> None:
    """Make one step, with a closure where it wants one. StepRaisedError around whatever it raises.

    The closure finds the gradients that the step began with, also where the step has cleared them.
    """
    seed(device)  # some draw in their step, and twins shall draw the same
    loss = torch.ones((), device=device)
    given = [(one, one.grad) for group in optimizer.param_groups for one in group["params"]]

    def closure() -> torch.Tensor:
        for one, grad in given:
            if one.grad is None:
                one.grad = grad
        return loss

    try:
        if closes:
            optimizer.step(closure)
            return
        try:
            optimizer.step()
        except Exception as error:
            if not _asks_for_closure(error):
                raise
            optimizer.step(closure)
    except (Exception, SystemExit) as error:
        raise StepRaisedError from error


def _asks_for_closure(error: Exception) -> bool:
    """Whether a step that was made without a closure says that it wants one, though its signature does not."""
    return "closure" in str(error).lower() or (isinstance(error, AssertionError) and not str(error))


class Twin:
    """One optimizer over "p" and "q". Two of the same bench that made the same steps are equal to the bit."""

    def __init__(self, optimizer: Any, parameters: Mapping[str, torch.Tensor], *, sparse: bool) -> None:
        self.optimizer = optimizer
        self.parameters = dict(parameters)
        self._sparse = sparse
        self._closes = step_needs_closure(optimizer)
        self._made = 0

    @property
    def p(self) -> torch.Tensor:
        """The parameter that is looked at."""
        return self.parameters["p"]

    def give(self, **presence: str) -> None:
        """Set gradients for the next step: "none", "zero" or "nonzero" by name, "nonzero" where none is said.

        Those of step n are the same in every twin. Of one that wants sparse gradients zero is one without entries.
        """
        self._made += 1
        draw = torch.Generator().manual_seed(SEED + self._made)
        for name, parameter in self.parameters.items():
            drawn = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            kind = presence.get(name, NONZERO)
            parameter.grad = self._grad(parameter, drawn, kind) if kind != NONE else None

    def _grad(self, parameter: torch.Tensor, drawn: torch.Tensor, kind: str) -> torch.Tensor:
        dense = drawn.to(parameter.device, parameter.dtype)
        if not self._sparse:
            return torch.zeros_like(dense) if kind == ZERO else dense
        return torch.zeros_like(dense).to_sparse() if kind == ZERO else dense.to_sparse()

    def update(self) -> None:
        """Make one step of the optimizer with the gradients that are there."""
        stepped(self.optimizer, self.p.device, closes=self._closes)

    def catch_up(self, steps: int) -> None:
        """Take so many steps for made: the next gradients are those that follow them."""
        self._made = steps

    def train(self, steps: int, **presence: str) -> None:
        """Give gradients and step, so many times."""
        for _ in range(steps):
            self.give(**presence)
            self.update()


@dataclass(frozen=True)
class Bench:
    """One subject with one set of hyperparameters and one implementation, on one device.

    `flat`: all parameters have one dimension, for an optimizer that takes no other.
    """

    subject: Subject
    variant: Variant
    implementation: str = FOR
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    flat: bool = False

    def arguments(self, **more: Any) -> dict[str, Any]:
        """What goes to the constructor beside what the user gave."""
        rate = {"lr": LEARNING_RATE} if self.subject.of_torch and "lr" not in self.subject.arguments else {}
        return {**rate, **self.variant.hyperparameters, **arguments_of(self.subject, self.implementation), **more}

    def optimizer(self, groups: Any, **more: Any) -> Any:
        """One over these parameters or groups. What its constructor raises passes through."""
        made = self.subject.made(groups, **self.arguments(**more))
        if callable(train := getattr(made, "train", None)):  # some keep two sets of weights, and ask which is meant
            train()
        return made

    def parameters(self, shapes: Mapping[str, tuple[int, ...]] = _SHAPES) -> dict[str, torch.Tensor]:
        """New parameters, the same ones at every call."""
        draw = torch.Generator().manual_seed(SEED)
        sizes = {name: (math.prod(one),) if self.flat else one for name, one in shapes.items()}
        drawn = {name: torch.randn(one, generator=draw, dtype=torch.float64) for name, one in sizes.items()}
        made = {name: torch.nn.Parameter(one.to(self.device, self.dtype)) for name, one in drawn.items()}
        # A step that is differentiated through is one on what was computed: leaves cannot be changed in place.
        differentiated = self.variant.hyperparameters.get("differentiable", False)
        KEPT_ALIVE.extend(made.values())
        if not differentiated:
            return {**made}
        computed = {name: one.clone() for name, one in made.items()}
        for one in computed.values():
            one.retain_grad()
        return computed

    def twin(self, history: int = HISTORY, shapes: Mapping[str, tuple[int, ...]] = _SHAPES, **more: Any) -> Twin:
        """A new optimizer over new parameters that has made so many steps. What it raises passes through."""
        parameters = self.parameters(shapes)
        twin = Twin(self.optimizer(parameters.values(), **more), parameters, sparse=self.subject.sparse)
        twin.train(history)
        return twin

    def row(
        self, scenario: str, optimizer: Any, parameter: torch.Tensor, act: Callable[[], object], *,
        history: int, name: str = "p", facts: Callable[[], Mapping[str, Json]] | Mapping[str, Json] = NO_FACTS,
    ) -> Row:  # fmt: skip
        """Do `act`, and say what it made of the parameter. What a step raises is told in the row; all else passes.

        `facts` that can be called are asked for afterwards.
        """
        before = Snapshot.of(optimizer, parameter)
        grad = presence(parameter.grad)
        settings = _hyperparameters(optimizer, parameter)
        raised = ""
        entering = Entering(parameter, state_of(optimizer, parameter))
        try:
            with entering:
                act()
        except StepRaisedError as error:
            raised = said_of(error)
        after = Snapshot.of(optimizer, parameter)
        changed = before.changed_state(after)
        counter, counted = after.counter(), before.counter()

        def told() -> dict[str, Json]:
            return dict(facts() if callable(facts) else facts)

        same = before.same_param(after)
        return Row(
            optimizer=self.subject.name, variant=self.variant.name, implementation=self.implementation,
            scenario=scenario, parameter=name, hyperparameters=settings, history=history, grad=grad,
            entered_step=entering.seen or not same or bool(changed), param_changed=not same, state_changed=changed,
            step_advanced=None if counter is None else counter != (counted or 0.0),
            before=before.shown(), after=after.shown(), raised=raised, facts={} if raised else told(),
            device=str(parameter.device), dtype=str(parameter.dtype).removeprefix("torch."), versions=self.versions,
        )  # fmt: skip

    def failed(self, scenario: str, error: BaseException) -> Row:
        """The row of a scenario that did not come to its step."""
        return Row(
            optimizer=self.subject.name, variant=self.variant.name, implementation=self.implementation,
            scenario=scenario, parameter="p", hyperparameters={}, history=0, grad=NONZERO, entered_step=False,
            param_changed=False, state_changed=(), step_advanced=None, raised=said_of(error), device=self.device,
            dtype=str(self.dtype).removeprefix("torch."), versions=self.versions,
        )  # fmt: skip

    @cached_property
    def versions(self) -> dict[str, str]:
        """Of what made the steps."""
        own = {"python": platform.python_version(), "torch": str(torch.__version__)}
        if torch.device(self.device).type != "cuda":
            return own
        return {**own, "cuda": str(torch.version.cuda), "gpu": torch.cuda.get_device_name(self.device)}


def seed(device: torch.device) -> None:
    """Seed the generators of this process and of the device; `torch.manual_seed` looks at every kind there is."""
    torch.default_generator.manual_seed(SEED)
    if device.type == "cuda":
        torch.cuda.manual_seed(SEED)


def said_of(error: BaseException) -> str:
    """What was raised, in one line; of a step what its optimizer said."""
    return one_line(error.__cause__ if isinstance(error, StepRaisedError) and error.__cause__ is not None else error)


def presence(grad: torch.Tensor | None) -> str:
    """Whether a gradient is none, zero or nonzero; one with NaN is nonzero."""
    if grad is None:
        return NONE
    values = grad.coalesce().values() if grad.is_sparse else grad
    return NONZERO if bool((values != 0).any()) else ZERO


def _hyperparameters(optimizer: Any, parameter: torch.Tensor) -> dict[str, Json]:
    """Of the group that holds the parameter, else of the first one; what is no plain value is left out."""
    groups = getattr(optimizer, "param_groups", None) or [{}]
    held = next((one for one in groups if any(own is parameter for own in one.get("params", ()))), groups[0])
    return {str(key): plain for key, value in held.items() if key != "params" and (plain := _plain(value)) is not _NOT}


_NOT: Final = object()


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return value.item()
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(one, bool | int | float | str) for one in value):
        return [*value]
    return _NOT

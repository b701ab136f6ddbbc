"""Frozen parameters that move within one run, and trainable sets that a resume changes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch

import ckptcheck
from tests.catalogue.fault import Expected, Fault
from tests.catalogue.spec import Spec
from tests.catalogue.training import Training

FAMILY: Final = "freezing"
FREEZES_AT: Final = 4
PART: Final = "middle"


def _names(training: Training, part: str) -> tuple[str, ...]:
    return tuple(f"{part}.{name}" for name, _ in training.model.get_submodule(part).named_parameters())


def _require(training: Training, part: str, flag: bool) -> None:
    training.model.get_submodule(part).requires_grad_(flag)


def _held(training: Training) -> None:
    """Declare that the part which is frozen in the middle of training holds its values."""
    made = training.run

    def run() -> ckptcheck.Run:
        one = made()
        return replace(one, freeze={**one.freeze, f"{PART}.*": "hold"})

    training.run = run  # type: ignore[method-assign]


def _freezes_on_time(training: Training) -> None:
    """Freeze before the step, in every process that has come so far."""
    training.before_step.append(lambda s: _require(training, PART, s < FREEZES_AT))
    training.after_restore.append(lambda: _require(training, PART, training.loop.completed < FREEZES_AT))
    _held(training)


def _zeroes_stay(training: Training) -> None:
    """Gradients are filled with zeros, so that those of what is frozen stay zero and are stepped."""
    clear = training.optimizer.zero_grad
    training.optimizer.zero_grad = lambda set_to_none=False: clear(set_to_none=False)  # type: ignore
    _freezes_on_time(training)


def _zeroes_made(training: Training) -> None:
    """A wrapper gives every parameter that has no gradient a zero one, so that all ranks have the same set."""

    def fill(s: int) -> None:
        for one in training.model.get_submodule("first").parameters():
            one.grad = torch.zeros_like(one)

    training.between.append(fill)


def _stale_gradient(training: Training) -> None:
    """The part is frozen between backward and update, and only gradients of what is trained are cleared."""

    def clear(set_to_none: bool = True) -> None:
        for one in training.model.parameters():
            if one.requires_grad:
                one.grad = None

    training.optimizer.zero_grad = clear  # type: ignore[method-assign]
    training.between.append(lambda s: _require(training, PART, s < FREEZES_AT))
    training.after_restore.append(lambda: _require(training, PART, training.loop.completed < FREEZES_AT))
    _held(training)


def _held_contents(training: Training, part: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Copies of a part's values, and of its optimizer state."""
    values = list(training.model.get_submodule(part).parameters())
    state = [torch.as_tensor(entry).clone() for one in values for entry in training.optimizer.state[one].values()
             if one in training.optimizer.state]  # fmt: skip
    return [one.detach().clone() for one in values], state


def _breach(inject: Callable[[Training], None], part: str, first: int) -> Callable[[Training], Expected]:
    """What moves first in a part that is frozen from step `first` on, found by training with the fault."""

    def expect(plain: Training) -> Expected:
        from tests.catalogue.running import context

        training = Training(plain.spec, context())
        inject(training)
        for s in range(1, plain.spec.steps + 1):
            before = _held_contents(training, part)
            training.step(s)
            after = _held_contents(training, part)
            moved = [not _equal(one, other) for one, other in zip(before, after, strict=True)]
            if s >= first and any(moved):
                causes = [code for code, one in zip(("CK401", "CK402"), moved, strict=True) if one]
                stages = [stage for stage, one in zip(("param", "state"), moved, strict=True) if one]
                return Expected(tuple(causes), step=s, stages=tuple(stages), parameters=_names(plain, part),
                                beside=("CK403",))  # fmt: skip
        raise AssertionError(f"nothing moves in {plain.spec}")

    return expect


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def _flipped_after_load(part: str, flag: bool) -> Callable[[Training], None]:
    return lambda training: training.after_restore.append(lambda: _require(training, part, flag))


def _thaws_by_own_count(training: Training) -> None:
    """The part is thawed once this process has made seven steps."""
    made = [0]

    def thaw(s: int) -> None:
        made[0] += 1
        _require(training, PART, made[0] > 7)

    _require(training, PART, False)
    training.before_step.append(thaw)


def _another_backbone(training: Training) -> None:
    """The frozen part is fetched anew at each start, and its newest release has other weights."""

    def fetch() -> None:
        with torch.no_grad():
            for one in training.model.get_submodule("first").parameters():
                one.mul_(1.01)

    training.after_restore.append(fetch)


def _moves(spec: Spec) -> bool:
    """Whether an update with a zero gradient changes a value or a state at all: SGD alone needs decay for it."""
    return spec.optimizer != "SGD" or spec.groups > 1


FAULTS: Final = (
    Fault("frozen-with-zero-gradients", "zero_grad(set_to_none=False) leaves zeros on what is frozen, and it moves.",
          FAMILY, _zeroes_stay, _breach(_zeroes_stay, PART, FREEZES_AT),
          applies=_moves, specs={"freeze": "none"}, reports=("zero_grad_drift",)),
    Fault("frozen-and-given-zeros", "A wrapper fills in zero gradients for what has none, and decay moves it.",
          FAMILY, _zeroes_made, _breach(_zeroes_made, "first", 1),
          applies=_moves, specs={"freeze": "grad"}, reports=("zero_grad_drift",)),
    Fault("frozen-with-a-stale-gradient", "The gradient from before the freeze is never cleared, and is stepped on.",
          FAMILY, _stale_gradient, _breach(_stale_gradient, PART, FREEZES_AT), specs={"freeze": "none"},
          reports=("zero_grad_drift",)),
    Fault("thawed-by-the-load", "The load builds the model without freezing it.",
          FAMILY, _flipped_after_load("first", True),
          lambda training: Expected(("CK405",), parameters=_names(training, "first"), says=("now trained",)),
          specs={"freeze": "grad"}, reports=("refreeze",)),
    Fault("thaw-counts-this-process", "Layers thaw after so many steps of this process.",
          FAMILY, _thaws_by_own_count,
          lambda training: Expected(("CK405",), step=8, stages=("hyperparameters",), says=_names(training, PART)),
          specs={"window": 1}, reports=("refreeze",)),
    Fault("frozen-part-from-elsewhere", "The frozen part is fetched anew at the resume, in a newer release.",
          FAMILY, _another_backbone,
          lambda training: Expected(("CK601",), parameters=_names(training, "first")),
          specs={"freeze": "grad"}, reports=("overwritten",)),
)  # fmt: skip

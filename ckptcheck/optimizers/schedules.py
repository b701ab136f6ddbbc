"""What each learning rate schedule of torch keeps, when it ends, and the rate that follows from its position.

The formulas are those of `_get_closed_form_lr` in torch/optim/lr_scheduler.py (2.13); a state_dict names no class, so
that it is told by its fields.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Fields: TypeAlias = Mapping[str, float]
"""Numbers by field; of a list its items as "milestones[2]"."""
Rate: TypeAlias = Callable[[Fields, float, int], float]
"""The rate from fields, base rate and position."""


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One class.

    Attributes:
        name: of the class.
        keys: what its state has beside `COMMON`; of lists the name.
        marks: of these, what no other class has: they tell the class where another key is lost.
        rate: the rate at a position; None where a user's function or a history of steps makes it.
        when: of the keys, those that are there only where a switch is on, with that switch.
        end: the field whose number is the last position that can be reached; "" where it goes on for ever.
    """

    name: str
    keys: frozenset[str]
    marks: frozenset[str]
    rate: Rate | None = None
    end: str = ""
    when: Mapping[str, str] = field(default_factory=dict)


def _step(fields: Fields, base: float, position: int) -> float:
    return base * fields["gamma"] ** (position // int(fields["step_size"]))


def _multi_step(fields: Fields, base: float, position: int) -> float:
    """A milestone that is given several times counts as often."""
    passed = sum(
        int(times)
        for path, times in fields.items()
        if path.startswith("milestones") and int(path[len("milestones") :].strip("[].{}'")) <= position
    )
    return base * fields["gamma"] ** passed


def _exponential(fields: Fields, base: float, position: int) -> float:
    return base * fields["gamma"] ** position


def _constant(fields: Fields, base: float, position: int) -> float:
    return base * (1.0 if position >= fields["total_iters"] else fields["factor"])


def _linear(fields: Fields, base: float, position: int) -> float:
    passed = min(fields["total_iters"], position) / fields["total_iters"]
    return base * (fields["start_factor"] + (fields["end_factor"] - fields["start_factor"]) * passed)


def _cosine(fields: Fields, base: float, position: int) -> float:
    low = fields["eta_min"]
    return low + (base - low) * (1 + math.cos(math.pi * position / fields["T_max"])) / 2


def _polynomial(fields: Fields, base: float, position: int) -> float:
    passed = min(fields["total_iters"], position) / fields["total_iters"]
    return float(base * (1.0 - passed) ** fields["power"])


def _restarts(fields: Fields, base: float, _: int) -> float:
    low = fields["eta_min"]
    return low + (base - low) * (1 + math.cos(math.pi * fields["T_cur"] / fields["T_i"])) / 2


def _row(
    name: str, keys: str, marks: str, rate: Rate | None = None, end: str = "", *, when: Mapping[str, str] | None = None
) -> ScheduleRow:
    return ScheduleRow(name, frozenset(keys.split()), frozenset(marks.split()), rate, end, when or {})


COMMON: Final = frozenset(
    {"base_lrs", "last_epoch", "_step_count", "_is_initial", "_get_lr_called_within_step", "_last_lr", "verbose"}
)
"""What most classes keep; older releases of torch have fewer of them."""
NEEDED: Final = frozenset({"base_lrs", "last_epoch"})
"""Of these, what every formula reads."""

_CYCLED: Final = {"use_beta1": "cycle_momentum"}
SCHEDULES: Final[tuple[ScheduleRow, ...]] = (
    _row("StepLR", "step_size gamma", "step_size", _step),
    _row("MultiStepLR", "milestones gamma", "milestones", _multi_step),
    _row("ExponentialLR", "gamma", "", _exponential),
    _row("ConstantLR", "factor total_iters", "", _constant),
    _row("LinearLR", "start_factor end_factor total_iters", "start_factor", _linear),
    _row("CosineAnnealingLR", "T_max eta_min", "T_max", _cosine),
    _row("PolynomialLR", "total_iters power", "power", _polynomial),
    _row("CosineAnnealingWarmRestarts", "T_0 T_i T_mult eta_min T_cur", "T_0 T_i", _restarts),
    _row("OneCycleLR", "total_steps _schedule_phases _anneal_func_type cycle_momentum use_beta1",
         "_schedule_phases", None, "total_steps", when=_CYCLED),
    _row("CyclicLR", "max_lrs total_size step_ratio mode gamma scale_mode cycle_momentum use_beta1",
         "total_size step_ratio", when=_CYCLED),
    _row("LambdaLR", "lr_lambdas", "lr_lambdas"),
    _row("ReduceLROnPlateau", "factor patience cooldown mode threshold threshold_mode best cooldown_counter "
         "num_bad_epochs", "threshold_mode patience"),
)  # fmt: skip
"""MultiplicativeLR keeps what LambdaLR does."""

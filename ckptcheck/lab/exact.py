"""Nine transitions in plain rational arithmetic, and the same steps of torch.optim.SGD in float64.

Learning rate 1/10, weight decay 1/10, momentum 9/10, the parameter begins at 1. There is no first-step
initialisation, bias correction or mixed precision: the momentum buffer is put into the optimizer's state beforehand.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import torch

from ckptcheck.lab.contract import FOR, FOREACH, FUSED, NONE, ZERO, Transition

RATE: Final = Fraction(1, 10)
DECAY: Final = Fraction(1, 10)
MOMENTUM: Final = Fraction(9, 10)
MOST_ULP: Final = 4
"""1/10 and 9/10 are no numbers of float64: each of the at most four operations of a step rounds by half a unit."""
_DENOMINATOR: Final = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """One transition: where it begins, how often it steps, and with what. `buffer` None is no momentum."""

    name: str
    grad: str
    decay: Fraction = Fraction(0)
    buffer: Fraction | None = None
    rate: Fraction = RATE
    steps: int = 1


CASES: Final = (
    Case("decay only, gradient none", NONE, DECAY),
    Case("decay only, gradient zero", ZERO, DECAY),
    Case("gradient zero, decay 0", ZERO),
    Case("momentum, buffer 2, gradient none", NONE, buffer=Fraction(2)),
    Case("momentum, buffer 2, gradient zero", ZERO, buffer=Fraction(2)),
    Case("momentum, buffer 0, gradient zero", ZERO, buffer=Fraction(0)),
    Case("momentum, buffer 2, gradient zero, learning rate 0", ZERO, buffer=Fraction(2), rate=Fraction(0)),
    Case("momentum, buffer 2, two steps with gradient zero", ZERO, buffer=Fraction(2), steps=2),
)
BOTH: Final = "decay with gradient none and with gradient zero differ"
"""The ninth, which is about two others."""


def expected(case: Case) -> tuple[Fraction, ...]:
    """The parameter, and the buffer where there is one, after the steps; nothing of torch is used."""
    parameter, buffer = Fraction(1), case.buffer
    for _ in range(case.steps if case.grad != NONE else 0):
        direction = case.decay * parameter  # the gradient is zero
        if buffer is not None:
            buffer = direction = MOMENTUM * buffer + direction
        parameter -= case.rate * direction
    return (parameter,) if buffer is None else (parameter, buffer)


def observed(case: Case, implementation: str, device: str) -> tuple[float, ...]:
    """The same by real steps in float64. What torch raises passes through."""
    parameter = torch.nn.Parameter(torch.ones(1, dtype=torch.float64, device=device))
    optimizer = torch.optim.SGD(
        [parameter], lr=float(case.rate), weight_decay=float(case.decay),
        momentum=float(MOMENTUM) if case.buffer is not None else 0.0,
        foreach=implementation == FOREACH, fused=implementation == FUSED,
    )  # fmt: skip
    if case.buffer is not None:
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, float(case.buffer))
    for _ in range(case.steps):
        parameter.grad = None if case.grad == NONE else torch.zeros_like(parameter)
        optimizer.step()
    if case.buffer is None:
        return (parameter.item(),)
    return parameter.item(), optimizer.state[parameter]["momentum_buffer"].item()


def transitions(device: str) -> Iterator[Transition]:
    """All nine, in each implementation that is there on this device."""
    for implementation in (FOR, FOREACH, FUSED):
        if implementation == FOR or _is_there(implementation, device):
            found = [_held(case, implementation, device) for case in CASES]
            yield from found
            yield _ninth(found[0], found[1], implementation)


def _is_there(implementation: str, device: str) -> bool:
    try:
        observed(CASES[1], implementation, device)
    except RuntimeError:  # what torch says of an implementation that it does not have here
        return False
    return True


def _held(case: Case, implementation: str, device: str) -> Transition:
    wanted, came = expected(case), observed(case, implementation, device)
    off = [_ulp(one, float(other)) for one, other in zip(came, wanted, strict=True)]
    rests = case.grad == NONE or case.rate == 0
    passed = all(one <= MOST_ULP for one in off) and (not rests or came[0] == 1.0)
    return Transition(case.name, _in_words(wanted), _in_words(tuple(map(_fraction, came))), passed, implementation,
                      max(off))  # fmt: skip


def _ninth(none: Transition, zero: Transition, implementation: str) -> Transition:
    differ = none.observed != zero.observed
    return Transition(
        BOTH, f"{none.expected} and {zero.expected}", f"{none.observed} and {zero.observed}",
        differ and none.passed and zero.passed, implementation, max(none.ulp, zero.ulp),
    )  # fmt: skip


def _ulp(one: float, other: float) -> int:
    """How many units in the last place of the greater one they lie apart."""
    if one == other:
        return 0
    return math.ceil(abs(one - other) / math.ulp(max(abs(one), abs(other))))


def _fraction(value: float) -> Fraction:
    """The simplest fraction that is this number to within its rounding; else what it is exactly."""
    near = Fraction(value).limit_denominator(_DENOMINATOR)
    return near if _ulp(value, float(near)) <= MOST_ULP else Fraction(value)


def _in_words(numbers: tuple[Fraction, ...]) -> str:
    told = [str(one) for one in numbers]
    return told[0] if len(told) == 1 else f"({', '.join(told)})"

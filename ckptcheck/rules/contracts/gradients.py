"""What an optimizer makes of a parameter without a gradient."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.finding import Json, Place, Severity
from ckptcheck.lab.contract import NONE, ZERO, Contracts, Row
from ckptcheck.rules.rule import Evidence, Rule, also, rule
from ckptcheck.rules.stored.numbers import non_finite
from ckptcheck.rules.words import names

KNOWN: Final = frozenset({"LBFGS"})
"""Classes of torch.optim of which it is known: all parameters are one vector to them."""
_RESTING: Final[Mapping[str, str]] = {
    "history": "a step without one",
    "no-history": "a step without one, before any other,",
    "lr-zero": "a step without one at learning rate 0",
    "rests": "many steps without one",
    "branch-inactive": "a step without one, of a branch that was not used,",
    "branch-never-active": "a step without one, of a branch that was never used,",
}
"""Scenarios in which a parameter without a gradient has to rest, in words."""


@rule("CK701", "none-treated-as-zero", Severity.ERROR)
def none_treated_as_zero(found: Contracts) -> Iterator[Evidence]:
    """A step changes a parameter, or its optimizer state, though its gradient is none.

    Why: torch's convention is that a parameter without a gradient does not take part in a step: neither it nor its
    moments move. An optimizer that takes none for zeros decays and pushes parameters of branches that were not used,
    and of layers that are frozen.
    Example: a custom `step` with `grad = p.grad if p.grad is not None else torch.zeros_like(p)`.
    Fix: leave out parameters whose `grad` is None at the begin of the loop.
    Limits: shown for one parameter, at its first step, after five and over 40 more: what comes later is not
    seen. LBFGS does so too; that is known, and a warning.
    """
    told: set[tuple[str, str]] = set()
    for row in found.rows:
        if row.scenario not in _RESTING or row.grad != NONE or not row.moved or (row.optimizer, row.variant) in told:
            continue
        told.add((row.optimizer, row.variant))
        known = is_known(row)
        yield Evidence(
            f"{called(row)} takes a gradient that is none for zeros: {_moves(row)} {what_moved(row)}",
            Place(parameter=row.parameter),
            {"optimizer": row.optimizer, "variant": row.variant, "implementation": row.implementation,
             "scenario": row.scenario, "param_changed": row.param_changed, "state_changed": [*row.state_changed],
             "before": dict(row.before), "after": dict(row.after)},
            "keep parameters that shall rest out of its groups" if known
            else "leave parameters whose grad is None out of the step, as the optimizers of torch do",
            Severity.WARNING if known else None,
        )  # fmt: skip


@also(non_finite)
def zeros_make_nan(found: Contracts) -> Iterator[Evidence]:
    """A step with zeros makes finite values NaN or infinite: a division by a norm of 0."""
    told: set[tuple[str, str]] = set()
    for row in found.rows:
        keys = [key for key, after in row.after.items() if not _finite(after) and _finite(row.before.get(key, "new"))
                and (key in row.before)]  # fmt: skip
        if row.grad != ZERO or not keys or (row.optimizer, row.variant) in told:
            continue
        told.add((row.optimizer, row.variant))
        yield Evidence(
            f"{called(row)} makes {names(keys)} NaN or infinite in a step with zeros (scenario {row.scenario})",
            Place(parameter=row.parameter, key=next((key for key in keys if key != "param"), None)),
            {"optimizer": row.optimizer, "variant": row.variant, "scenario": row.scenario,
             "before": dict(row.before), "after": dict(row.after)},
            "add a small number to what is divided by, or leave the step out where it is 0",
        )  # fmt: skip


def _finite(shown: Json) -> bool:
    """Whether all numbers that a row shows of an entry are finite."""
    values = shown if isinstance(shown, list) else [shown]
    return all(not isinstance(one, float) or math.isfinite(one) for one in values)


def _moves(row: Row) -> str:
    return f"{_RESTING[row.scenario]} {'change' if row.scenario == 'rests' else 'changes'}"


def is_known(row: Row) -> bool:
    """Whether the optimizer is one of `KNOWN`, by itself or in a target, where its class stands behind its place."""
    return row.optimizer in KNOWN or row.optimizer.endswith(tuple(f" ({one})" for one in KNOWN))


def called(row: Row) -> str:
    """The optimizer with what sets it apart."""
    return f"{row.optimizer} ({row.variant})" if row.variant else row.optimizer


def what_moved(row: Row) -> str:
    """What a step changed, in words."""
    parts = ["its value"] * row.param_changed + [", ".join(row.state_changed)] * bool(row.state_changed)
    return " and ".join(parts)


RULES: Final[tuple[Rule[Contracts], ...]] = (none_treated_as_zero, zeros_make_nan)

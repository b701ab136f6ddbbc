"""What an optimizer makes of parameters that are frozen, and whether a target's way of freezing keeps its contract."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Json, Place, Severity
from ckptcheck.lab.contract import NONE, Contracts, Way
from ckptcheck.rules.contracts.gradients import called, is_known, what_moved
from ckptcheck.rules.rule import Evidence, Rule, also, rule
from ckptcheck.rules.runs.frozen import gradient_on_frozen_parameter

PRESENT: Final = "present"
_FROZEN: Final = frozenset({"frozen-none"})
"""Scenarios in which nothing but the update could move a frozen parameter, and nothing should."""


@rule("CK702", "frozen-parameter-stepped", Severity.ERROR)
def frozen_parameter_stepped(found: Contracts) -> Iterator[Evidence]:
    """A step moves a frozen parameter or its optimizer state.

    Why: what should stay as pretrained drifts, unseen in the loss.
    Example: a custom optimizer that decays every parameter of its groups; a gradient that is zero and not none under
    AdamW, where `requires_grad` does not matter to an update.
    Fix: give a frozen parameter no gradient at all, or keep it out of the groups; `probe TARGET --freeze` tries which
    way keeps the contract.
    Limits: of an optimizer by itself it is judged with `requires_grad=False` and a gradient that is none; a stale or
    zeroed gradient is stepped by every optimizer of torch, and is told as a case of its own. LBFGS does so with none
    too; that is known, and a warning.
    """
    told: set[tuple[str, str, str]] = set()
    for row in found.rows:
        key = row.optimizer, row.variant, row.parameter
        if row.scenario not in _FROZEN or row.grad != NONE or not row.moved or key in told:
            continue
        told.add(key)
        yield Evidence(
            f"{called(row)} steps {row.parameter}, which is frozen and has no gradient: {what_moved(row)} changes",
            Place(parameter=row.parameter),
            {"optimizer": row.optimizer, "variant": row.variant, "param_changed": row.param_changed,
             "state_changed": [*row.state_changed], "before": dict(row.before), "after": dict(row.after)},
            "keep frozen parameters out of its groups" if is_known(row)
            else "leave parameters whose grad is None out of the step, as the optimizers of torch do",
            Severity.WARNING if is_known(row) else None,
        )  # fmt: skip
    yield from (_broken(found, way) for way in _present(found) if way.contract != "no-grad")


@also(gradient_on_frozen_parameter, severity=Severity.ERROR)
def gradient_reaches_frozen(found: Contracts) -> Iterator[Evidence]:
    """A gradient reaches a parameter of a target that is under the contract no-grad."""
    yield from (_broken(found, way) for way in _present(found) if way.contract == "no-grad")


def _present(found: Contracts) -> Iterator[Way]:
    yield from (one for one in found.freezing if one.name == PRESENT and one.keeps is False)


def _broken(found: Contracts, way: Way) -> Evidence:
    """The contract does not hold in the target as it is; what to do is what was seen to keep it."""
    asked = way.pattern, way.contract
    keeping = [one.name for one in found.freezing if (one.pattern, one.contract) == asked and one.keeps]
    fix = f"freeze by: {keeping[0]}" if keeping else _no_way(found, asked)
    numbers: dict[str, Json] = {"pattern": way.pattern, "contract": way.contract, "would_keep": [*keeping]}
    return Evidence(
        f"{way.parameter} is under contract {way.contract!r}, which is broken in step {way.broken_at}: {way.broken_by}",
        Place(parameter=way.parameter, step=way.broken_at),
        {**numbers, **way.evidence},
        fix,
    )


def _no_way(found: Contracts, asked: tuple[str, str]) -> str:
    """That no other way keeps the contract, or that none could be tried to the end."""
    others = [one for one in found.freezing if (one.pattern, one.contract) == asked and one.name != PRESENT]
    if others and all(one.keeps is None for one in others):
        return f"no other way could be tried to the end: {others[0].reason}"
    return "no way of freezing that was tried keeps the contract"


RULES: Final[tuple[Rule[Contracts], ...]] = (frozen_parameter_stepped, gradient_reaches_frozen)

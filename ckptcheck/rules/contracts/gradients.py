"""What an optimizer makes of a parameter without a gradient."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.lab.contract import NONE, Contracts, Row
from ckptcheck.rules.rule import Evidence, Rule, rule

KNOWN: Final = frozenset({"LBFGS"})
"""Classes of torch.optim of which it is known: all parameters are one vector to them."""
_SCENARIO: Final = "history"


@rule("CK701", "none-treated-as-zero", Severity.ERROR)
def none_treated_as_zero(found: Contracts) -> Iterator[Evidence]:
    """A step changes a parameter, or its optimizer state, though its gradient is none.

    Why: torch's convention is that a parameter without a gradient does not take part in a step: neither it nor its
    moments move. An optimizer that takes none for zeros decays and pushes parameters of branches that were not used,
    and of layers that are frozen.
    Example: a custom `step` with `grad = p.grad if p.grad is not None else torch.zeros_like(p)`.
    Fix: leave out parameters whose `grad` is None at the begin of the loop.
    Limits: shown for one parameter after five steps. LBFGS does so too; that is known, and a warning.
    """
    told: set[tuple[str, str]] = set()
    for row in found.rows:
        if row.scenario != _SCENARIO or row.grad != NONE or not row.moved or (row.optimizer, row.variant) in told:
            continue
        told.add((row.optimizer, row.variant))
        known = is_known(row)
        yield Evidence(
            f"{called(row)} takes a gradient that is none for zeros: a step without one changes {what_moved(row)}",
            Place(parameter=row.parameter),
            {"optimizer": row.optimizer, "variant": row.variant, "implementation": row.implementation,
             "param_changed": row.param_changed, "state_changed": [*row.state_changed],
             "before": dict(row.before), "after": dict(row.after)},
            "keep parameters that shall rest out of its groups" if known
            else "leave parameters whose grad is None out of the step, as the optimizers of torch do",
            Severity.WARNING if known else None,
        )  # fmt: skip


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


RULES: Final[tuple[Rule[Contracts], ...]] = (none_treated_as_zero,)

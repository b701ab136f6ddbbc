"""Whether an optimizer can make the steps that any other can."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.lab.contract import Contracts
from ckptcheck.rules.contracts.gradients import called
from ckptcheck.rules.rule import Evidence, Rule, rule


@rule("CK706", "optimizer-raises", Severity.ERROR)
def optimizer_raises(found: Contracts) -> Iterator[Evidence]:
    """A step raises where the optimizers of torch make one: without a gradient, with zeros, at the first step.

    Why: a branch that rests for a batch, or a frozen layer, ends the training.
    Example: `p.grad.data` without a look at whether there is a gradient.
    Fix: leave parameters whose `grad` is None out of the step.
    Limits: an implementation that cannot be made on a device is not there, and no finding.
    """
    told: set[tuple[str, str]] = set()
    for row in found.rows:
        if not row.raised or (row.optimizer, row.raised) in told:
            continue
        told.add((row.optimizer, row.raised))
        yield Evidence(
            f"{called(row)} raises in scenario {row.scenario} with a gradient that is {row.grad}: {row.raised}",
            Place(parameter=row.parameter),
            {"optimizer": row.optimizer, "variant": row.variant, "implementation": row.implementation,
             "scenario": row.scenario, "gradient": row.grad, "raised": row.raised},
            "look at the line of the optimizer that raised, with a gradient like that",
        )  # fmt: skip


RULES: Final[tuple[Rule[Contracts], ...]] = (optimizer_raises,)

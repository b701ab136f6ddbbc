"""Whether the implementations of an optimizer are one optimizer."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.lab.contract import Agreement, Contracts
from ckptcheck.rules.rule import Evidence, Rule, rule

FAR: Final = 1e-3
"""Of the size of the steps that were made: rounding of float32 over six steps stays a hundred times below."""


@rule("CK704", "implementations-disagree", Severity.WARNING)
def implementations_disagree(found: Contracts) -> Iterator[Evidence]:
    """Two implementations of one optimizer change other things, or come to other values than rounding explains.

    Why: which one is used depends on the device and on defaults: the training is another one elsewhere.
    Example: a foreach path that steps parameters whose gradient is none.
    Fix: ask for one implementation by foreach= or fused=, and report the other.
    Limits: held against the loop over parameters after six steps. Other bits within 1/1000 of what the steps moved are
    rounding, and told in the table only.
    """
    told: set[tuple[str, str]] = set()
    for one in found.implementations:
        key = one.optimizer, one.implementation
        if one.raised or key in told or not (one.same_contract is False or _is_far(one)):
            continue
        told.add(key)
        called = f"{one.optimizer} ({one.variant})" if one.variant else one.optimizer
        other = f"the {one.implementation} implementation of {called}"
        yield Evidence(
            f"{other} changes other things than the loop over parameters"
            if one.same_contract is False
            else f"{other} is {one.max_abs:.1e} away from the loop over parameters after {one.steps} steps",
            Place(),
            {"optimizer": one.optimizer, "variant": one.variant, "implementation": one.implementation,
             "gradient": one.grad, "same_contract": one.same_contract, "max_abs": one.max_abs, "max_ulp": one.max_ulp,
             "update": one.update},
            "ask for one implementation by foreach= or fused=",
        )  # fmt: skip


def _is_far(one: Agreement) -> bool:
    """Whether two values are further apart than rounding brings them; a value that is not finite always is."""
    if one.bitwise or one.max_abs is None:
        return False
    return not one.max_abs <= FAR * (one.update or 0.0)


RULES: Final[tuple[Rule[Contracts], ...]] = (implementations_disagree,)

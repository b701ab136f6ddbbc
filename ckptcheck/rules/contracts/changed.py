"""Whether the contract is that of an earlier probe."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.lab.contract import Contracts, Row
from ckptcheck.rules.contracts.gradients import called, what_moved
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, rule


@rule("CK705", "contract-changed", Severity.ERROR, "baseline")
def contract_changed(found: Contracts) -> Iterator[Evidence | Unjudged]:
    """A step changes other things than it did in an earlier probe: with another torch, on another device.

    Why: a resume there is another training, however exact the checkpoint.
    Example: an optimizer of a new version that steps parameters whose gradient is none.
    Fix: stay with the version, or say so in the release; write the baseline anew once it is understood.
    Limits: what changes is compared, not by how much. Cases that only one of the two probes has are not judged.
    """
    now = {row.case: row for row in found.rows}
    then = {row.case: row for row in found.baseline or ()}
    for case, row in now.items():
        before = then.get(case)
        if before is None or before.answer == row.answer:
            continue
        yield Evidence(
            f"{called(row)} [{row.implementation}], {row.scenario}, gradient {row.grad}: {_what(row)} now, "
            f"where it was {_what(before)} ({_made_with(before)} -> {_made_with(row)})",
            Place(parameter=row.parameter),
            {"optimizer": row.optimizer, "variant": row.variant, "implementation": row.implementation,
             "scenario": row.scenario, "gradient": row.grad, "was": [*before.state_changed],
             "is": [*row.state_changed], "param_changed": [before.param_changed, row.param_changed]},
            "find out which of the two is meant; write the baseline anew where the new one is",
        )  # fmt: skip
    gone = [row for case, row in then.items() if case not in now]
    if gone:
        first = gone[0]
        yield Unjudged(f"{len(gone)} of {len(then)} cases of the baseline were not probed, such as {called(first)} "
                       f"[{first.implementation}], {first.scenario}")  # fmt: skip


def _what(row: Row) -> str:
    if row.raised:
        return f"raises {row.raised}"
    return f"{what_moved(row)} moving" if row.moved else "nothing moving"


def _made_with(row: Row) -> str:
    return f"{row.device}, torch {row.versions.get('torch', 'unknown')}"


RULES: Final[tuple[Rule[Contracts], ...]] = (contract_changed,)

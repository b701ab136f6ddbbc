"""CK604 beside a cause at the load: other inputs later on, which what the load broke need not bring along."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Severity
from ckptcheck.rules.rule import Evidence, also
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.data import data_diverged
from ckptcheck.rules.runs.origin import repeated_step, step_of_other_inputs
from ckptcheck.rules.words import place_of

CHOOSING: Final = frozenset({"data", "extra"})
"""Sections that inputs are chosen from. In plain training they depend on these and on generators alone."""


@also(data_diverged, "load", "trajectory", severity=Severity.WARNING)
def inputs_differ_too(case: Case) -> Iterator[Evidence]:
    """Where the load broke weights, moments, buffers and the like, inputs that differ later are a second fault."""
    if case.load is None or case.trajectory is None or case.other_step is not None or case.lost_steps:
        return
    drawn = any(one.name in case.trajectory.drawn for one in case.loaded("rng"))
    if drawn or case.idle_generators or any(one.section in CHOOSING for one in case.load.entries):
        return
    # Where one run calls the model more often, or a generator parts before, that is what brought other inputs.
    apart = (one for one in case.trajectory.differences if one.item.kind in ("rng", "inputs"))
    first = next(apart, None)
    if first is None or first.item.kind != "inputs" or first.left is None or first.right is None:
        return
    seen = repeated_step(case) if first.step == step_of_other_inputs(case) else None
    unless = "a second fault, unless the inputs are made by what differs before (a GAN, a policy)"
    told = "a second fault" if seen is not None else unless
    came = f": step {first.step} saw the batch of step {seen}" if seen is not None else ""
    yield Evidence(
        f"inputs differ too, from step {first.step} on{came}; {told}",
        place_of(first),
        {"batch_of_step": seen, "second_fault": True},
        "look for what the batches are drawn from and Run does not declare: a generator of their own, a queue, a "
        "position; save and restore it",
        severity=Severity.ERROR if seen is not None else None,
    )

"""What a forward pass did in both runs: whether its inputs were seen, and where its results part."""

from ckptcheck.comparison.traces import Difference
from ckptcheck.rules.runs.case import Case


def forward_apart(case: Case) -> Difference | None:
    """The first loss or gradient that differs, where the first divergence is that or a buffer that moved along.

    Statistics are sampled before the loss and move in the forward pass: where the loss of the same step differs
    too, they are a consequence of what made it differ.
    """
    first = case.first
    if first is None or case.trajectory is None or first.stage not in ("buffers", "loss", "grad"):
        return None
    same_step = (one for one in case.trajectory.differences if one.step == first.step)
    return next((one for one in same_step if one.stage in ("loss", "grad")), None)


def inputs_seen(case: Case, step: int) -> bool:
    """Whether anything that entered the model in a step has a content that could be compared."""
    return case.origins is None or case.origins.has_inputs(step)

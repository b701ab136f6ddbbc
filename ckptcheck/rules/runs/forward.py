"""What a forward pass did in both runs: whether its inputs were seen, and where its results part."""

from ckptcheck.comparison.traces import Difference
from ckptcheck.rules.runs.case import Case
from ckptcheck.trace.items import PRESENCE


def forward_apart(case: Case) -> Difference | None:
    """The first loss or gradient that differs, where the first divergence is that or a buffer that moved along.

    Statistics are sampled before the loss and move in the forward pass: where the loss of the same step differs
    too, they are a consequence of what made it differ.
    """
    first = case.first
    if first is None or case.trajectory is None or first.stage not in ("buffers", "loss", "grad"):
        return None
    if left_unread(case):
        return None
    same_step = (one for one in case.trajectory.differences if one.step == first.step)
    return next((one for one in same_step if one.stage in ("loss", "grad")), None)


def left_unread(case: Case) -> bool:
    """Whether gradients differ first only because one run made no update that would have shown them.

    Without an update they are sampled at the step's end, when they may be cleared. Where a loss scale differs too, the
    update was skipped for an overflow.
    """
    first = case.first
    if first is None or case.trajectory is None or first.stage != "grad":
        return False
    same_step = [one for one in case.trajectory.differences if one.step == first.step]
    updates = next((one for one in same_step if one.item.kind == "updates"), None)
    if updates is None or updates.left is None or updates.right is None:
        return False
    fewer_on_the_right = (updates.right.value or 0) < (updates.left.value or 0)  # type: ignore[operator]
    sides = [one.right if fewer_on_the_right else one.left for one in same_step if one.stage == "grad"]
    cleared = all(side is None or PRESENCE[side.presence or 0] == "none" for side in sides)
    return cleared and not any(one.item.kind == "scaler" for one in same_step)


def inputs_seen(case: Case, step: int) -> bool:
    """Whether anything that entered the model in a step has a content that could be compared."""
    return case.origins is None or case.origins.has_inputs(step)

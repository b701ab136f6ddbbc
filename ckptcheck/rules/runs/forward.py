"""What a forward pass did in both runs: whether its inputs were seen, and where its results part."""

import math
from collections.abc import Sequence
from typing import Final

from ckptcheck.comparison.traces import Difference
from ckptcheck.rules.runs.case import Case
from ckptcheck.trace.items import PRESENCE, Sample

_ROUNDING: Final = 1e-4
"""How far norms of two tensors may be from a factor that lies between them: they are sums in float32."""


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
    update was skipped for an overflow; but where they differ by the very loss scale, they were not unscaled for one.
    """
    first = case.first
    if first is None or case.trajectory is None or first.stage != "grad":
        return False
    same_step = [one for one in case.trajectory.differences if one.step == first.step]
    updates = next((one for one in same_step if one.item.kind == "updates"), None)
    if updates is None or updates.left is None or updates.right is None:
        return False
    fewer_on_the_right = (updates.right.value or 0) < (updates.left.value or 0)  # type: ignore[operator]
    if _differ_by_the_scale(same_step, fewer_on_the_right=fewer_on_the_right):
        return True
    sides = [one.right if fewer_on_the_right else one.left for one in same_step if one.stage == "grad"]
    cleared = all(side is None or PRESENCE[side.presence or 0] == "none" for side in sides)
    return cleared and not any(one.item.kind == "scaler" for one in same_step)


def _differ_by_the_scale(same_step: Sequence[Difference], *, fewer_on_the_right: bool) -> bool:
    """Whether each gradient of the run without the update is that of the other one times a loss scale."""
    idle = [(one.right, one.left) if fewer_on_the_right else (one.left, one.right) for one in same_step
            if one.stage == "grad"]  # fmt: skip
    ratios = [ratio for sides in idle if (ratio := _ratio(*sides)) is not None]
    if len(ratios) < len(idle) or not ratios or ratios[0] <= 1 or not math.isfinite(ratios[0]):
        return False
    if not all(math.isclose(one, ratios[0], rel_tol=_ROUNDING) for one in ratios):
        return False
    scales = [one.right if fewer_on_the_right else one.left for one in same_step
              if one.item.kind == "scaler" and one.item.name.endswith("scale")]  # fmt: skip
    known = [one.value for one in scales if one is not None and isinstance(one.value, int | float)]
    return all(math.isclose(one, ratios[0], rel_tol=_ROUNDING) for one in known)


def _ratio(one: Sample | None, other: Sample | None) -> float | None:
    """How many times the one is the other, by their norms or their single values."""
    if one is None or other is None:
        return None
    sizes = [side.norm if side.norm is not None else side.value for side in (one, other)]
    if not all(isinstance(size, int | float) for size in sizes) or not sizes[1]:
        return None
    return float(sizes[0]) / float(sizes[1])  # type: ignore[arg-type]


def inputs_seen(case: Case, step: int) -> bool:
    """Whether anything that entered the model in a step has a content that could be compared."""
    return case.origins is None or case.origins.has_inputs(step)

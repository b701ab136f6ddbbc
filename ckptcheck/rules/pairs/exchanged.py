"""CK302: names that were exchanged in an optimizer, while the state stayed at its place."""

import math
from typing import Final

from ckptcheck.comparison.checkpoint_diff import OptimizerPair
from ckptcheck.comparison.continuity import can_follow
from ckptcheck.rules.pairs.course import Counted
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Optimizer

_SQUARES: Final = "exp_avg_sq"
"""A mean of squares, which forgets by beta2 and by nothing else."""
_MOST: Final = 16
"""So many names are looked at."""


def not_following(pair: Pair, one: OptimizerPair, left: Optimizer, right: Optimizer) -> dict[str, str]:
    """Names that stand at another place on the right, with the name whose state lies there still.

    Told only where numbers prove it: the state there cannot be the name's own a few updates later, and can be that of
    the name before. Reads a part of some second moments.
    """
    if [len(group.members) for group in left.groups] != [len(group.members) for group in right.groups]:
        return {}
    counters = pair.course.of(one.optimizer)
    found: dict[str, str] = {}
    places = [
        (place, before, now) for place, (ours, theirs) in enumerate(zip(left.groups, right.groups, strict=True))
        for before, now in zip(ours.members, theirs.members, strict=True)
        if before is not None and now is not None and before != now
    ]  # fmt: skip
    for place, before, now in places[:_MOST]:
        kept = _kept(right, place, counters.get(now))
        if kept is None:
            continue
        later = right.state.get(now, {}).get(_SQUARES)
        own, other = (left.state.get(name, {}).get(_SQUARES) for name in (now, before))
        if later is None or own is None or other is None:
            continue
        if can_follow(own.ref, later.ref, kept) is False and can_follow(other.ref, later.ref, kept):
            found[now] = before
    return found


def _kept(optimizer: Optimizer, place: int, counted: Counted | None) -> float | None:
    """The part of a second moment that is left after the updates in between."""
    beta = finite_number(optimizer.groups[place].hyperparameters.get("betas[1]"))
    if beta is None or counted is None or counted.rise < 0 or not 0 < beta < 1:
        return None
    return float(math.pow(beta, counted.rise))

"""Which parameter is in which param group on either side, with the group's values: what stands side by side.

The part of one optimizer is `{"run", "optimizer", "class_name", "same_members", "same_order", "of", "left", "right"}`.
A group is `{"group", "size", "members", "options"}`: its members by name in order, null where both sides have the same
ones in the same order; null in it stands for a tensor that the model does not hold. `of` gives for each right group
the left one that it answers to, or null.
"""

from collections.abc import Iterator

from ckptcheck.comparison.groups import match_groups
from ckptcheck.finding import Json
from ckptcheck.state.training_state import Optimizer, TrainingState


def membership(left: TrainingState, right: TrainingState, run: str | None = None) -> Iterator[dict[str, Json]]:
    """A part for each optimizer that both sides have."""
    for place, pair in enumerate(zip(left.optimizers, right.optimizers, strict=False)):
        yield membership_of(place, *pair, run)


def membership_of(place: int, left: Optimizer, right: Optimizer, run: str | None = None) -> dict[str, Json]:
    """The part of one optimizer, which is called `place`."""
    match = match_groups([group.members for group in left.groups], [group.members for group in right.groups])
    equal = match.same_order
    return {
        "run": run,
        "optimizer": place,
        "class_name": right.class_name or left.class_name,
        "same_members": match.same_members,
        "same_order": match.same_order,
        "of": [match.left_of.get(number) for number in range(len(right.groups))],
        "left": [*_groups(left, equal)],
        "right": [*_groups(right, equal)],
    }


def _groups(optimizer: Optimizer, equal: bool) -> Iterator[dict[str, Json]]:
    for number, group in enumerate(optimizer.groups):
        yield {
            "group": number,
            "size": len(group.members),
            "members": None if equal else [*group.members],
            "options": {key: entry.value for key, entry in group.hyperparameters.items()},
        }

"""Hyperparameters that a script sets itself: whatever a load has put into the groups is overwritten."""

from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

from ckptcheck.rules.loads.dry_run import Paired
from ckptcheck.rules.loads.hyperparameters import same_number
from ckptcheck.rules.loads.views import sizes
from ckptcheck.state.training_state import Group, Optimizer, TrainingState
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import Item

Slot: TypeAlias = tuple[int, int, str]
"""(optimizer, group, key) of a hyperparameter."""


def set_each_step(trace: Trace) -> frozenset[Slot]:
    """The hyperparameters that change from step to step although no schedule was seen that sets them."""
    if any(item.kind == "schedule" for item, _ in trace.tensors()):
        return frozenset()
    found = {item for item, _ in trace.tensors() if item.kind == "hyper"}
    return frozenset((item.optimizer, item.group, item.key) for item in found if _changes(trace, item))


def _changes(trace: Trace, item: Item) -> bool:
    return any(one != other for (_, one), (_, other) in pairwise(trace.digests(item)))


def without_set_by_hand(pair: Paired, loaded: TrainingState, moving: frozenset[Slot]) -> Paired:
    """A pair without the hyperparameters that the script itself sets: `moving`, and those that have a third value.

    A rate that the training loop calculates for each step is no fault of the load.
    """
    if pair.file is None or sizes(pair.file) != sizes(pair.live):
        return pair
    groups = []
    listed = zip(pair.file.groups, pair.live.groups, loaded.optimizers[pair.place].groups, strict=False)
    for place, (given, built, now) in enumerate(listed):
        own = given.hyperparameters.keys() & now.hyperparameters.keys() & built.hyperparameters.keys()
        third = {
            key
            for key in own
            if (pair.place, place, key) in moving
            or not any(same_number(one.hyperparameters[key], now.hyperparameters[key]) for one in (given, built))
        }
        groups.append(tuple(_without(one, third) for one in (given, built)))
    file = replace(pair.file, groups=tuple(given for given, _ in groups))
    return replace(pair, file=file, live=replace(pair.live, groups=tuple(built for _, built in groups)))


def with_the_keys(loaded: Optimizer, pair: Paired) -> Optimizer:
    """A live optimizer after the load without the hyperparameters that its pair has lost."""
    if pair.file is None or len(pair.file.groups) != len(loaded.groups):
        return loaded
    groups = []
    for now, given, built in zip(loaded.groups, pair.file.groups, pair.live.groups, strict=True):
        lost = now.hyperparameters.keys() - given.hyperparameters.keys() - built.hyperparameters.keys()
        groups.append(_without(now, set(lost)))
    return replace(loaded, groups=tuple(groups))


def _without(group: Group, keys: set[str]) -> Group:
    return replace(group, hyperparameters={key: one for key, one in group.hyperparameters.items() if key not in keys})

"""Which optimizer of a file goes into which of a target, and under which names."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final

from ckptcheck.optimizers.guessing import guess
from ckptcheck.rules.loads.dry_run import Paired
from ckptcheck.rules.loads.views import members_by_place, sizes
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.training_state import Group, Optimizer, TrainingState, unnamed

MAX_ORDERED: Final = 4
"""Of more optimizers no other order is tried."""
_BY_ORDER: Final = (NameSource.MODEL_ORDER, NameSource.GROUPING)
_NO_NAMES = Naming(NameSource.NONE, certain=False, reason="")


def pair_optimizers(checkpoint: Checkpoint, built: TrainingState) -> tuple[Paired, ...]:
    """One pair for each live optimizer, by the names that the file has, else by place.

    Where the file numbers its parameters, they get the names of the live ones at their places.
    """
    stored = checkpoint.state.optimizers
    namings = [*checkpoint.namings, *[_NO_NAMES] * len(stored)][: len(stored)]
    places = _places(built.optimizers, stored, namings)
    pairs = []
    for place, (live, found) in enumerate(zip(built.optimizers, places, strict=True)):
        if found is None:
            pairs.append(Paired(place, live, None))
            continue
        naming = namings[found]
        by_name = naming.source in (NameSource.KEYS, NameSource.SLICES)
        own = stored[found] if naming.certain else _named_by(live, stored[found])
        pairs.append(
            Paired(
                place=place,
                live=live,
                file=own,
                named=naming.certain,
                exact_groups=not by_name or checkpoint.convention == "store",
                by_position=not by_name,
                numbered=naming.source is NameSource.NONE,
                suggested=_suggested(live, stored[found]) if naming.source in _BY_ORDER else {},
                guesses=guess(stored[found]).names,
                file_place=found,
            )
        )
    return tuple(pairs)


def _places(live: Sequence[Optimizer], stored: Sequence[Optimizer], namings: Sequence[Naming]) -> list[int | None]:
    """For each live optimizer the place of the file's: who shares most names, else by place where counts agree."""
    taken: set[int] = set()
    found: list[int | None] = [None] * len(live)
    for place, one in enumerate(live):
        names = set(one.members)
        shared = {
            other: len(names.intersection(stored[other].members))
            for other, naming in enumerate(namings)
            if naming.certain and other not in taken
        }
        best = max(shared, key=lambda other: (shared[other], other == place), default=None)
        if best is not None and shared[best]:
            found[place] = best
            taken.add(best)
    free = [other for other in range(len(stored)) if other not in taken]
    open_places = [place for place, other in enumerate(found) if other is None]
    if len(free) == len(open_places):
        # A dict of optimizers may stand in another order than the run has them.
        for place, other in zip(open_places, _in_order(open_places, free, live, stored), strict=True):
            found[place] = other
    return found


def _in_order(
    places: Sequence[int], free: list[int], live: Sequence[Optimizer], stored: Sequence[Optimizer]
) -> list[int]:
    """As they stand, unless another order alone lets every live optimizer have one of its own class and lengths."""
    orders = permutations(free) if len(free) <= MAX_ORDERED else iter([tuple(free)])
    fitting = (
        one
        for one in orders
        if all(_fits(live[place], stored[other]) for place, other in zip(places, one, strict=True))
    )
    return [*next(fitting, free)]


def _fits(live: Optimizer, stored: Optimizer) -> bool:
    return sizes(live) == sizes(stored) and live.class_name in {one.rpartition(".")[2] for one in guess(stored).names}


def _suggested(live: Optimizer, stored: Optimizer) -> dict[str, str]:
    """The file's name at the place of each live one; nothing where the counts differ."""
    if sizes(live) != sizes(stored):
        return {}
    places = zip(members_by_place(live), members_by_place(stored), strict=True)
    return {name: own for name, own in places if name is not None and own is not None}


def _named_by(live: Optimizer, stored: Optimizer) -> Optimizer:
    """The file's optimizer with the live names at its places; as it is where the counts differ."""
    if sizes(live) != sizes(stored):
        return stored
    names: dict[str, str] = {}
    groups = []
    for place, (own, group) in enumerate(zip(live.groups, stored.groups, strict=True)):
        for index, (name, was) in enumerate(zip(own.members, group.members, strict=True)):
            if was is not None:
                names.setdefault(was, name if name is not None else unnamed(place, index))
        groups.append(Group(own.members, group.hyperparameters))
    state = {names.get(name, name): one for name, one in stored.state.items()}
    return replace(stored, groups=tuple(groups), state=state)

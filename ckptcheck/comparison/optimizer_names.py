"""Under which names the parameters of two optimizers are held against each other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ckptcheck.comparison.groups import match_groups
from ckptcheck.state.checkpoint import NameSource, Naming
from ckptcheck.state.training_state import Entry, Optimizer

KEYED_BY_INDEX: Final = frozenset(
    {
        NameSource.PARAM_NAMES, NameSource.USER, NameSource.MODEL_ORDER, NameSource.GROUPING, NameSource.TARGET,
        NameSource.NONE,
    }
)  # fmt: skip
"""Sources of names for a state that itself goes by numbers: torch's load_state_dict binds it by position."""


@dataclass(frozen=True, slots=True)
class Names:
    """New names for the left's and the right's parameters, and what they go by: "name", "position" or "none"."""

    left: Mapping[str, str] = field(default_factory=dict)
    right: Mapping[str, str] = field(default_factory=dict)
    paired_by: str = "name"


def names_for(
    optimizers: tuple[Optimizer, Optimizer], namings: tuple[Naming, Naming], tied: Mapping[str, tuple[str, ...]]
) -> Names:
    """By name; by position where a side has no names, or only guessed ones that contradict what positions allow."""
    left, right = optimizers
    named = [naming.source is not NameSource.NONE for naming in namings]
    if not all(named):
        ours, theirs = _flat(left), _flat(right)
        if len(ours) != len(theirs):
            return Names(paired_by="position" if named[0] == named[1] else "none")
        found = {other: one for one, other in zip(ours, theirs, strict=True) if one is not None and other is not None}
        return Names(right=found, paired_by="position" if found or named[0] == named[1] else "none")
    through = _through_ties(left, right, tied)
    if all(naming.certain for naming in namings):
        return Names(right=through)
    renamed = rename(right, _named_by(through)) if through else right
    if not _guess_contradicts(left, renamed, namings):
        return Names(right=through)
    # A guessed name must not stand where the other side knows better.
    if namings[1].certain:
        return Names(left=dict(zip(_known(left), _known(renamed), strict=True)), right=through, paired_by="position")
    return Names(right=dict(zip(_known(right), _known(left), strict=True)), paired_by="position")


def rename(optimizer: Optimizer, name_of: Callable[[str], str]) -> Optimizer:
    """The optimizer with other names; of two that become one the first is kept."""
    groups = tuple(
        replace(group, members=tuple(member if member is None else name_of(member) for member in group.members))
        for group in optimizer.groups
    )
    state: dict[str, Mapping[str, Entry]] = {}
    for name, kept in optimizer.state.items():
        state.setdefault(name_of(name), kept)
    return replace(optimizer, groups=groups, state=state)


def renamed_by(optimizer: Optimizer, names: Mapping[str, str]) -> Optimizer:
    """The optimizer under new names, those that `names` lacks being kept."""
    return rename(optimizer, _named_by(names)) if names else optimizer


def binds_by_position(left: Optimizer, right: Optimizer, namings: tuple[Naming, Naming]) -> bool:
    """Whether another order of groups or members surely mixes up state: torch loads it by position, not by name.

    Names that are not certain prove another order only where shapes at the same position differ.
    """
    if not all(naming.source in KEYED_BY_INDEX for naming in namings):
        return False
    return all(naming.certain for naming in namings) or not _fit_by_position(left, right)


def _guess_contradicts(left: Optimizer, right: Optimizer, namings: tuple[Naming, Naming]) -> bool:
    """Whether names that one side guessed part what groups, counts and shapes allow to pair by position."""
    ours, theirs = _known(left), _known(right)
    counts = [[len(group.members) for group in one.groups] for one in (left, right)]
    if ours == theirs or counts[0] != counts[1] or not ours:
        return False
    if not (_are_whole(left, ours) and _are_whole(right, theirs) and _fit_by_position(left, right)):
        return False
    if all(naming.source in KEYED_BY_INDEX for naming in namings):
        return True
    # A side that is keyed by name need not keep the order.
    return not match_groups(*([group.members for group in one.groups] for one in (left, right))).same_members


def _are_whole(optimizer: Optimizer, members: list[str]) -> bool:
    """Whether each parameter has a name of its own, and all state is a member's."""
    return len(members) == len(_flat(optimizer)) == len(set(members)) and optimizer.state.keys() <= set(members)


def _fit_by_position(left: Optimizer, right: Optimizer) -> bool:
    """Whether the states of parameters at the same position are of the same shapes."""
    for one, other in zip(_flat(left), _flat(right), strict=False):
        ours, theirs = left.state.get(one or "", {}), right.state.get(other or "", {})
        for key in ours.keys() & theirs.keys():
            specs = ours[key].spec, theirs[key].spec
            if specs[0] is not None and specs[1] is not None and specs[0].shape != specs[1].shape:
                return False
    return True


def _flat(optimizer: Optimizer) -> list[str | None]:
    return [member for group in optimizer.groups for member in group.members]


def _known(optimizer: Optimizer) -> list[str]:
    return [member for member in _flat(optimizer) if member is not None]


def _named_by(names: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: names.get(name, name)


def _through_ties(left: Optimizer, right: Optimizer, tied: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The left's name for each name that only the right uses, where both are names of one tied parameter."""
    ours, theirs = ({**dict.fromkeys(_known(one)), **dict.fromkeys(one.state)} for one in (left, right))
    names = {}
    for name in theirs:
        if name not in ours and name in tied:
            known = next((one for one in tied[name] if one in ours and one not in theirs), None)
            names.update({name: known} if known is not None else {})
    return names

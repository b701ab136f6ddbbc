"""Two optimizers, paired by parameter name, or by position where a side has no names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ckptcheck.comparison.checkpoint_diff import Regrouped
from ckptcheck.comparison.groups import GroupMatch, match_groups
from ckptcheck.comparison.pairs import Pair, Pairing, by_key
from ckptcheck.state.checkpoint import Checkpoint, NameSource
from ckptcheck.state.training_state import Entry, Group, Optimizer


@dataclass(frozen=True, slots=True)
class Side:
    """One side's optimizers, and of each whether its parameters go by names."""

    optimizers: tuple[Optimizer, ...]
    named: tuple[bool, ...]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Side":
        """As the convention explained them."""
        sources = [naming.source for naming in checkpoint.namings]
        optimizers = checkpoint.state.optimizers
        named = (place >= len(sources) or sources[place] is not NameSource.NONE for place in range(len(optimizers)))
        return cls(optimizers, tuple(named))


def pair_optimizers(left: Side, right: Side, tied: Mapping[str, tuple[str, ...]], pairing: Pairing) -> None:
    """Pair the state, the hyperparameters and the memberships of each optimizer by its place in the run.

    `tied` gives all names of a tied parameter by each of them: a side may keep its state under another one.
    """
    nobody = Optimizer(None, ())
    for place in range(max(len(left.optimizers), len(right.optimizers))):
        one, other = (side.optimizers[place] if place < len(side.optimizers) else nobody for side in (left, right))
        if one is nobody or other is nobody:
            _pair(place, one, other, GroupMatch({}, same_members=False, same_order=False), pairing)
            continue
        by_name = left.named[place] and right.named[place]
        names = _through_ties(one, other, tied) if by_name else _by_position(one, other)
        other = rename(other, _named_by(names)) if names else other
        match = _matched(one.groups, other.groups)
        _pair(place, one, other, match, pairing)
        pairing.left_group_of.update(((place, right_group), group) for right_group, group in match.left_of.items())
        if by_name or names or left.named[place] == right.named[place]:
            pairing.paired_by.append("name" if by_name else "position")
            _compare_members(place, one, other, match, pairing)
        else:
            pairing.paired_by.append("none")
            pairing.not_compared.append(_incomparable(place, one, other, "right" if left.named[place] else "left"))
        if one.class_name and other.class_name and one.class_name != other.class_name:
            pairing.notes.append(f"optimizer {place}: {one.class_name} on the left, {other.class_name} on the right")


def group_of(optimizer: Optimizer) -> dict[str, int]:
    """The first group of each member."""
    found: dict[str, int] = {}
    for place, group in enumerate(optimizer.groups):
        for member in group.members:
            if member is not None:
                found.setdefault(member, place)
    return found


def _through_ties(left: Optimizer, right: Optimizer, tied: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The left's name for each name that only the right uses, where both are names of one tied parameter."""
    ours, theirs = {**group_of(left), **dict.fromkeys(left.state)}, {**group_of(right), **dict.fromkeys(right.state)}
    names = {}
    for name in theirs:
        if name not in ours and name in tied:
            known = next((one for one in tied[name] if one in ours and one not in theirs), None)
            names.update({name: known} if known is not None else {})
    return names


def _by_position(left: Optimizer, right: Optimizer) -> dict[str, str]:
    """The left's name for each of the right's, the members of all groups counted through; empty where counts differ."""
    ours, theirs = ([member for group in one.groups for member in group.members] for one in (left, right))
    if len(ours) != len(theirs):
        return {}
    return {other: one for one, other in zip(ours, theirs, strict=True) if one is not None and other is not None}


def _incomparable(place: int, left: Optimizer, right: Optimizer, nameless: str) -> str:
    counts = [sum(len(group.members) for group in one.groups) for one in (left, right)]
    return (
        f"optimizer {place}: the {nameless} numbers its parameters, and {counts[0]} on the left and {counts[1]} on the "
        "right cannot be paired by position either"
    )


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


def _named_by(names: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: names.get(name, name)


def _matched(left: tuple[Group, ...], right: tuple[Group, ...]) -> GroupMatch:
    members = [[group.members for group in side] for side in (left, right)]
    if members[0] == members[1]:  # spares the search among thousands of groups
        return GroupMatch({place: place for place in range(len(left))}, same_members=True, same_order=True)
    return match_groups(*members)


def _pair(place: int, left: Optimizer, right: Optimizer, match: GroupMatch, pairing: Pairing) -> None:
    """Add the hyperparameters of each group and the state of each parameter."""
    right_of = {one: other for other, one in match.left_of.items()}
    groups = [(one, group.hyperparameters, _values(right, right_of.get(one))) for one, group in enumerate(left.groups)]
    groups += [(one, {}, _values(right, one)) for one in range(len(right.groups)) if one not in match.left_of]
    for group, ours, theirs in groups:
        pairing.pairs.extend(
            Pair("optimizer", None, key, one, other, "hyper", place, group) for key, one, other in by_key(ours, theirs)
        )
    group_on_left, group_on_right = group_of(left), group_of(right)
    for name in (*left.state, *(name for name in right.state if name not in left.state)):
        home = group_on_left.get(name, group_on_right.get(name))
        pairing.pairs.extend(
            Pair("optimizer", name, key, one, other, "state", place, home)
            for key, one, other in by_key(left.state.get(name, {}), right.state.get(name, {}))
        )


def _values(optimizer: Optimizer, group: int | None) -> Mapping[str, Entry]:
    return {} if group is None else optimizer.groups[group].hyperparameters


def _compare_members(place: int, left: Optimizer, right: Optimizer, match: GroupMatch, pairing: Pairing) -> None:
    ours, theirs = group_of(left), group_of(right)
    if not ours or not theirs:
        if ours or theirs:
            side = "right" if ours else "left"
            pairing.not_compared.append(f"optimizer {place}: the {side} does not say which parameters its groups hold")
        return
    moved = [
        Regrouped(name, place, ours.get(name), theirs.get(name))
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name, -1) != match.left_of.get(theirs.get(name, -1), -2)
    ]
    pairing.regrouped.extend(moved)
    if not moved and any(one != other for other, one in match.left_of.items()):
        pairing.notes.append(f"optimizer {place}: its groups stand in another order; they are paired by their members")
    elif not moved and not match.same_order:
        pairing.notes.append(f"optimizer {place}: parameters stand in another order in its groups; paired by name")

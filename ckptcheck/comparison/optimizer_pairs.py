"""Two optimizers, paired by parameter name, or by position where a side has no names that are certain."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ckptcheck.comparison.checkpoint_diff import GROUP_KEY, ORDER_KEY, Kind, OptimizerPair, Regrouped, Row
from ckptcheck.comparison.groups import GroupMatch, match_groups
from ckptcheck.comparison.optimizer_names import binds_by_position, names_for, renamed_by
from ckptcheck.comparison.optimizer_partners import Side, partners
from ckptcheck.comparison.pairs import Pair, Pairing, by_key
from ckptcheck.state.checkpoint import NameSource
from ckptcheck.state.training_state import Entry, Group, Optimizer

GROUPS_SHOWN: Final = 3
MEMBERS_SHOWN: Final = 3
"""Groups, and members of each, in which an order is told."""
SIZES_SHOWN: Final = 6
_NOBODY: Final = Optimizer(None, ())


def pair_optimizers(left: Side, right: Side, tied: Mapping[str, tuple[str, ...]], pairing: Pairing) -> None:
    """Pair the state, the hyperparameters and the memberships of each optimizer with its partner's.

    `tied` gives all names of a tied parameter by each of them: a side may keep its state under another one.
    """
    free = len(left.optimizers)
    for place, at in partners(left, right):
        number = place if place is not None else max(free, at or 0)
        free = max(free, number + 1)
        paired_by = ""
        if place is not None and at is not None:
            paired_by = _pair_two(number, (left, place), (right, at), tied, pairing)
            pairing.paired_by.append(paired_by)
        else:
            one = left.optimizers[place] if place is not None else _NOBODY
            other = right.optimizers[at] if at is not None else _NOBODY
            _pair(number, one, other, GroupMatch({}, same_members=False, same_order=False), pairing)
        labels = left.labels[place] if place is not None else "", right.labels[at] if at is not None else ""
        pairing.optimizers.append(OptimizerPair(number, place, at, *labels, paired_by))


def _pair_two(
    number: int,
    on_left: tuple[Side, int],
    on_right: tuple[Side, int],
    tied: Mapping[str, tuple[str, ...]],
    pairing: Pairing,
) -> str:
    """Pair an optimizer that both sides have; returns what its parameters were paired by."""
    one, other = (side.optimizers[place] for side, place in (on_left, on_right))
    namings = on_left[0].namings[on_left[1]], on_right[0].namings[on_right[1]]
    names = names_for((one, other), namings, tied)
    one, other = renamed_by(one, names.left), renamed_by(other, names.right)
    match = _matched(one.groups, other.groups)
    _pair(number, one, other, match, pairing)
    pairing.left_group_of.update(((number, right_group), group) for right_group, group in match.left_of.items())
    called = on_left[0].labels[on_left[1]] or number
    if one.groups and other.groups and _unlike_sizes(one, other, members=names.paired_by == "none"):
        ours, theirs = (Entry(None, None, value=_sizes(side)) for side in (one, other))
        pairing.reordered.append(Row("optimizer", None, ORDER_KEY, Kind.CHANGED, ours, theirs, number))
    if names.paired_by == "none":
        nameless = "left" if namings[0].source is NameSource.NONE else "right"
        pairing.not_compared.append(_incomparable(called, one, other, nameless))
    else:
        binds = binds_by_position(one, other, namings)
        _compare_members((number, called), (one, other), match, pairing, binds=binds)
    if one.class_name and other.class_name and one.class_name != other.class_name:
        pairing.notes.append(f"optimizer {called}: {one.class_name} on the left, {other.class_name} on the right")
    return names.paired_by


def _unlike_sizes(left: Optimizer, right: Optimizer, *, members: bool) -> bool:
    """Whether the sides have another number of groups; where `members` cannot be told by name, of members too."""
    counts = [[len(group.members) for group in one.groups] for one in (left, right)]
    return len(counts[0]) != len(counts[1]) or (members and sorted(counts[0]) != sorted(counts[1]))


def _sizes(optimizer: Optimizer) -> str:
    """Said of the groups: "2 groups of 3, 1 parameters"."""
    sizes = [str(len(group.members)) for group in optimizer.groups]
    more = ", ..." if len(sizes) > SIZES_SHOWN else ""
    return f"{len(sizes)} group{'' if len(sizes) == 1 else 's'} of {', '.join(sizes[:SIZES_SHOWN])}{more} parameters"


def _incomparable(called: str | int, left: Optimizer, right: Optimizer, nameless: str) -> str:
    counts = [sum(len(group.members) for group in one.groups) for one in (left, right)]
    return (
        f"optimizer {called}: the {nameless} numbers its parameters, and {counts[0]} on the left and {counts[1]} on "
        "the right cannot be paired by position either"
    )


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
    group_on_left, group_on_right = left.first_groups(), right.first_groups()
    for name in (*left.state, *(name for name in right.state if name not in left.state)):
        home = group_on_left.get(name, group_on_right.get(name))
        pairing.pairs.extend(
            Pair("optimizer", name, key, one, other, "state", place, home)
            for key, one, other in by_key(left.state.get(name, {}), right.state.get(name, {}))
        )


def _values(optimizer: Optimizer, group: int | None) -> Mapping[str, Entry]:
    return {} if group is None else optimizer.groups[group].hyperparameters


def _compare_members(
    which: tuple[int, str | int],
    optimizers: tuple[Optimizer, Optimizer],
    match: GroupMatch,
    pairing: Pairing,
    *,
    binds: bool,
) -> None:
    """Say who is in another group, and what stands in another order: a difference where that `binds`."""
    number, called = which
    ours, theirs = (one.first_groups() for one in optimizers)
    if not ours or not theirs:
        if ours or theirs:
            side = "right" if ours else "left"
            pairing.not_compared.append(f"optimizer {called}: the {side} does not say which parameters its groups hold")
        return
    moved = [
        Regrouped(name, number, ours.get(name), theirs.get(name))
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name, -1) != match.left_of.get(theirs.get(name, -1), -2)
    ]
    moved += _repeated(number, optimizers, match, {one.parameter for one in moved})
    pairing.regrouped.extend(moved)
    if moved or match.same_order:
        return
    if binds and len(optimizers[0].groups) == len(optimizers[1].groups):
        pairing.reordered.append(_order_row(number, *optimizers))
    elif any(one != other for other, one in match.left_of.items()):
        pairing.notes.append(f"optimizer {called}: its groups stand in another order; they are paired by their members")
    else:
        pairing.notes.append(f"optimizer {called}: parameters stand in another order in its groups; paired by name")


def _repeated(
    number: int, optimizers: tuple[Optimizer, Optimizer], match: GroupMatch, known: set[str]
) -> list[Regrouped]:
    """Memberships that only one side has beside those that both do: a parameter in two groups, or twice in one."""
    ours, theirs = (_memberships(one) for one in optimizers)
    group_on_right = {one: other for other, one in match.left_of.items()}
    answering = Counter({(name, match.left_of.get(group, -1)): count for (name, group), count in theirs.items()})
    left_only = [Regrouped(name, number, group, None) for name, group in ours - answering if name not in known]
    right_only = [
        Regrouped(name, number, None, group_on_right.get(group))
        for name, group in answering - ours
        if name not in known
    ]
    return left_only + right_only


def _memberships(optimizer: Optimizer) -> Counter[tuple[str, int]]:
    """How often each parameter stands in each group."""
    groups = enumerate(optimizer.groups)
    return Counter((member, place) for place, group in groups for member in group.members if member is not None)


def membership_rows(regrouped: Sequence[Regrouped]) -> Iterator[Row]:
    """One row for each parameter that is in another group."""
    for one in regrouped:
        left, right = (
            None if group is None else Entry(None, None, value=group) for group in (one.left_group, one.right_group)
        )
        group = one.left_group if one.left_group is not None else one.right_group
        yield Row("optimizer", one.parameter, GROUP_KEY, Kind.MOVED, left, right, one.optimizer, group)


def _order_row(number: int, left: Optimizer, right: Optimizer) -> Row:
    members = [[group.members for group in one.groups] for one in (left, right)]
    ours, theirs = (Entry(None, None, value=_order(own, other)) for own, other in (members, members[::-1]))
    return Row("optimizer", None, ORDER_KEY, Kind.MOVED, ours, theirs, number)


def _order(own: Sequence[Sequence[str | None]], other: Sequence[Sequence[str | None]]) -> str:
    """The groups that stand otherwise on the other side, from the first member that does."""
    apart = [place for place, group in enumerate(own) if place >= len(other) or tuple(group) != tuple(other[place])]
    said = []
    for place in apart[:GROUPS_SHOWN]:
        beside = other[place] if place < len(other) else ()
        pairs = enumerate(zip(own[place], beside, strict=False))
        first = next((at for at, (one, another) in pairs if one != another), 0)
        shown = [str(name) for name in own[place][first : first + MEMBERS_SHOWN]]
        more = ["..."] if first + MEMBERS_SHOWN < len(own[place]) else []
        said.append(f"group {place}: {', '.join([*(['...'] if first else []), *shown, *more])}")
    return "; ".join([*said, *(["..."] if len(apart) > GROUPS_SHOWN else [])])

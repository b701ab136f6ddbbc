"""Param groups of two sides, matched by who is in them and not by where they stand."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Members: TypeAlias = tuple[str | None, ...]

MAX_PAIRS: Final = 250_000
"""Pairs of groups that are looked at for members in common; of more, groups without an equal go by place."""


@dataclass(frozen=True, slots=True)
class GroupMatch:
    """How the groups of one optimizer on the right answer to those on the left.

    `left_of` maps a right group to the left group whose values it should have; `same_members` says whether both
    sides part the same parameters into the same groups, `same_order` whether also in the same order.
    """

    left_of: dict[int, int]
    same_members: bool
    same_order: bool


def match_groups(left: Sequence[Members], right: Sequence[Members]) -> GroupMatch:
    """Match by equal member sets first, then by most members in common, then by place."""
    left_sets = [frozenset(_known(group, place)) for place, group in enumerate(left)]
    right_sets = [frozenset(_known(group, place)) for place, group in enumerate(right)]
    left_of = _equal_sets(left_sets, right_sets)
    free = set(range(len(left))).difference(left_of.values())
    rest = [place for place in range(len(right)) if place not in left_of]
    if len(rest) * len(free) > MAX_PAIRS:
        return GroupMatch(
            left_of | {place: place for place in rest if place in free}, same_members=False, same_order=False
        )
    pairs = [(-len(left_sets[one] & right_sets[place]), one != place, place, one) for place in rest for one in free]
    for _, _, place, one in sorted(pairs):
        if place not in left_of and one in free:
            left_of[place] = one
            free.remove(one)
    same = len(left) == len(right) and all(left_sets[one] == right_sets[place] for place, one in left_of.items())
    return GroupMatch(left_of, same, [tuple(group) for group in left] == [tuple(group) for group in right])


def _equal_sets(left: Sequence[frozenset[str]], right: Sequence[frozenset[str]]) -> dict[int, int]:
    """Right groups to left groups of the same members, each once."""
    # The same place first, so that equal (say, empty) sets keep their own partner.
    left_of = {place: place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one == other}
    free: dict[frozenset[str], list[int]] = {}
    for place in reversed(range(len(left))):
        if place not in left_of:
            free.setdefault(left[place], []).append(place)
    for place, members in enumerate(right):
        if place not in left_of and free.get(members):
            left_of[place] = free[members].pop()
    return left_of


def _known(group: Members, place: int) -> list[str]:
    # A tensor that no module holds has no name: it is told apart by its slot.
    return [name if name is not None else f"<{place}.{index}>" for index, name in enumerate(group)]


def parse_groups(text: str | None) -> list[list[Members]]:
    """The groups of every optimizer from a trace's structure text; empty where there was none."""
    return [[tuple(group) for group in one["groups"]] for one in json.loads(text or "[]")]

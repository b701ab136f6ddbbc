"""Param groups of two sides, matched by who is in them and not by where they stand."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Members: TypeAlias = tuple[str | None, ...]


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
    free = list(range(len(left)))
    left_of: dict[int, int] = {}
    for place, members in enumerate(right_sets):
        # The same place first, so that equal (say, empty) sets keep their own partner.
        partner = next((one for one in sorted(free, key=lambda one: one != place) if left_sets[one] == members), None)
        if partner is not None:
            left_of[place] = partner
            free.remove(partner)
    rest = [place for place in range(len(right)) if place not in left_of]
    pairs = [(-len(left_sets[one] & right_sets[place]), one != place, place, one) for place in rest for one in free]
    for _, _, place, one in sorted(pairs):
        if place not in left_of and one in free:
            left_of[place] = one
            free.remove(one)
    same = len(left) == len(right) and all(left_sets[one] == right_sets[place] for place, one in left_of.items())
    return GroupMatch(left_of, same, [tuple(group) for group in left] == [tuple(group) for group in right])


def _known(group: Members, place: int) -> list[str]:
    # A tensor that no module holds has no name: it is told apart by its slot.
    return [name if name is not None else f"<{place}.{index}>" for index, name in enumerate(group)]


def parse_groups(text: str | None) -> list[list[Members]]:
    """The groups of every optimizer from a trace's structure text; empty where there was none."""
    return [[tuple(group) for group in one["groups"]] for one in json.loads(text or "[]")]

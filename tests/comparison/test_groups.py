"""Groups of two sides matched by who is in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptcheck.comparison.groups import match_groups, parse_groups


@pytest.mark.parametrize(
    ("left", "right", "left_of", "same_members", "same_order"),
    [
        ([("a", "b"), ("c",)], [("a", "b"), ("c",)], {0: 0, 1: 1}, True, True),
        ([("a", "b"), ("c",)], [("c",), ("a", "b")], {0: 1, 1: 0}, True, False),
        ([("a", "b")], [("b", "a")], {0: 0}, True, False),
        ([("a", "b"), ("c", "d")], [("a", "d"), ("c", "b")], {0: 0, 1: 1}, False, False),
        ([("a", "b", "c"), ("d",)], [("d", "a"), ("b", "c")], {1: 0, 0: 1}, False, False),
        ([("a",)], [("a",), ("b",)], {0: 0}, False, False),
        ([("a",), ("b",)], [("b",)], {0: 1}, False, False),
        ([(), ("a",)], [("a",), ()], {0: 1, 1: 0}, True, False),
        ([(), ()], [(), ()], {0: 0, 1: 1}, True, True),
        ([], [("a",)], {}, False, False),
        ([], [], {}, True, True),
        ([("a", None)], [("a", None)], {0: 0}, True, True),
        ([("a", None)], [(None, "a")], {0: 0}, False, False),
    ],
)
def test_groups_are_matched_by_members_and_then_by_place(left, right, left_of, same_members, same_order):
    match = match_groups(left, right)
    assert match.left_of == left_of
    assert (match.same_members, match.same_order) == (same_members, same_order)


PARTITIONS = st.integers(1, 12).flatmap(
    lambda size: st.lists(st.integers(0, 3), min_size=size, max_size=size).map(
        lambda homes: [tuple(f"p{n}" for n, home in enumerate(homes) if home == group) for group in range(4)]
    )
)


@given(PARTITIONS, st.randoms())
def test_the_same_groups_in_any_order_are_the_same_groups(groups, shuffle):
    shuffled = [tuple(shuffle.sample(group, len(group))) for group in groups]
    shuffle.shuffle(shuffled)
    match = match_groups(groups, shuffled)
    assert match.same_members
    assert sorted(match.left_of) == sorted(match.left_of.values()) == list(range(4))
    assert all(set(shuffled[right]) == set(groups[left]) for right, left in match.left_of.items())


@given(PARTITIONS, PARTITIONS)
def test_no_left_group_answers_to_two_right_ones(left, right):
    match = match_groups(left, right)
    assert len(set(match.left_of.values())) == len(match.left_of) == 4
    assert match.same_members == ({frozenset(one) for one in left if one} == {frozenset(one) for one in right if one}
                                  and len(left) == len(right))  # fmt: skip


def test_groups_are_read_from_the_text_of_a_trace():
    assert parse_groups('[{"class": "SGD", "groups": [["a", null], []]}]') == [[("a", None), ()]]
    assert parse_groups(None) == parse_groups("[]") == []


def test_thousands_of_groups_in_another_order_are_matched_by_their_members():
    groups = [(f"p{place}",) for place in range(5_000)]
    match = match_groups(groups, groups[::-1])
    assert match.left_of == {place: 4_999 - place for place in range(5_000)}
    assert (match.same_members, match.same_order) == (True, False)


def test_thousands_of_groups_with_nothing_in_common_go_by_place():
    match = match_groups([(f"p{place}",) for place in range(600)], [(f"q{place}",) for place in range(601)])
    assert match.left_of == {place: place for place in range(600)}
    assert not match.same_members


def test_beyond_so_many_pairs_groups_are_matched_by_place_alone():
    left, right = ([(f"{side}{place}",) for place in range(501)] for side in "lr")
    match = match_groups(left, right[:500])
    assert match.left_of == {place: place for place in range(500)}
    assert (match.same_members, match.same_order) == (False, False)

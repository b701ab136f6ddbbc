"""Optimizers that rest in some steps: after which steps one is between its updates, and where auto resumes."""

import pytest

from ckptcheck.verdict.course import Course
from ckptcheck.verdict.crossed import Experimented, situations
from ckptcheck.verdict.scouting import picked_points, reasons_for
from ckptcheck.verdict.turns import between_updates


def turns(made: str) -> dict[int, bool]:
    """By step, whether an update was made: "x" for yes."""
    return {step: one == "x" for step, one in enumerate(made, 1)}


BETWEEN = [
    # every third step: after a multiple of 3 a counter that begins anew counts as before
    (["xxxxxxxxxxxx", "..x..x..x..x"], {}, {1: {1, 2, 4, 5, 7, 8, 10, 11}}),
    # it begins with an update: after step 3 a counter that begins anew still does as before
    (["xxxxxxxxxx", "x..x..x..x"], {}, {1: {1, 2, 4, 5, 7, 8}}),
    # five of the one, then one of the other
    (["xxxxx.xxxxx.", ".....x.....x"], {}, {0: {*range(1, 11)} - {6}, 1: {*range(1, 12)} - {6}}),
    # one optimizer that keeps its count elsewhere than in gradients
    ([".x.x.x"], {}, {0: {1, 3, 5}}),
    # nothing comes back: where it rests, and updates again
    (["xxxxxxx", "...xxxx"], {}, {1: {1, 2, 3}}),
    (["xxxxx", "..x.."], {}, {1: {1, 2}}),
    (["xxxxxxx", "xx.x..x"], {}, {1: {3, 5, 6}}),
    # nobody rests; nobody updates again; only an overflow skipped; only a window waits
    (["xxxx", "xxxx"], {}, {}),
    (["xxxx", "xx.."], {}, {}),
    (["xx.x"], {"overflows": {3}}, {}),
    (["..x..x"], {"windows": {1, 2, 4, 5}}, {}),
    # an overflow in the turn of one hides no period, and a window beside a rest hides no rest
    (["xxxxxxxx", ".x...x.x"], {"overflows": {4}}, {1: {1, 3, 5, 7}}),
    ([".x.x.x.x", "...x...x"], {"windows": {1, 3, 5, 7}}, {1: {1, 2, 3, 5, 6, 7}}),
    ([], {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("made", "more", "expected"), BETWEEN)
def test_between_updates_a_counter_of_turns_matters(made, more, expected):
    found = between_updates(dict(enumerate(map(turns, made))), more.get("overflows", ()), more.get("windows", ()))
    assert found == expected


def course(steps, **more):
    empty = dict.fromkeys(("idle", "overflows", "windows", "rate_changes", "regroupings", "averages"), frozenset())
    return Course(tuple(range(1, steps + 1)), **{"keeps": {"updates"}, "warm_ups": (), "epochs": {}} | empty | more)


def other_than(period, last):
    return frozenset(step for step in range(1, last) if step % period)


PICKED = [
    # period 3 in 12 steps: half of them is a multiple
    (course(12, between={1: other_than(3, 12)}), (5, 6)),
    (course(20, between={1: other_than(3, 18)}), (5, 10)),  # step 10 serves as both; a second one is picked anyway
    # two optimizers: one step for both where there is one
    (course(12, between={0: other_than(2, 12), 1: other_than(3, 12)}), (5, 6)),
    (course(12, between={0: frozenset({2}), 1: frozenset({9})}), (2, 9)),
    # an accumulation window that serves as well
    (course(12, windows={5, 7}, between={1: other_than(6, 12)}), (5, 6)),
    (course(12, windows={4}, between={1: other_than(6, 12)}), (4, 6)),
]


@pytest.mark.parametrize(("run", "points"), PICKED)
def test_auto_picks_a_step_between_the_updates_of_each_that_rests(run, points):
    assert picked_points(run) == points
    assert all(not each.isdisjoint(points) for each in run.between.values())


@pytest.mark.parametrize("run", [course(last) for last in range(2, 30)] + [run for run, _ in PICKED])
def test_every_point_that_is_picked_has_its_reason(run):
    assert all(reasons_for(run, step) for step in picked_points(run))


def test_a_plain_point_is_told_as_what_it_is_and_one_that_was_not_picked_has_no_reason():
    assert [reasons_for(course(20), step) for step in (1, 5, 10, 15, 19)] == [
        [], ["a quarter of the steps"], ["half of the steps"], [], [],
    ]  # fmt: skip
    assert reasons_for(course(3), 2) == ["three quarters of the steps"]
    assert reasons_for(course(12, between={1: frozenset({5})}), 5) == [
        "between updates of an optimizer that rests in some steps"
    ]


NAME = "a resume between updates of an optimizer that rests in some steps"
THIRD = {"between": {1: other_than(3, 12)}}
BOTH = {"between": {0: frozenset({2, 3}), 1: frozenset({8})}}
CROSSED = [
    (THIRD, (3, 6), ("no", (), "--resume-at 5")),
    (THIRD, (3, 7), ("yes", (7,), "")),
    (BOTH, (3, 6), ("no", (), "--resume-at 8")),
    (BOTH, (3, 6, 8), ("yes", (3, 8), "")),
    ({}, (6,), ("does not apply", (), "")),
    ({"keeps": frozenset()}, (6,), ("does not apply", (), "")),
]


@pytest.mark.parametrize(("run", "points", "expected"), CROSSED)
def test_it_is_crossed_where_each_that_rests_was_resumed_between_its_updates(run, points, expected):
    one = next(one for one in situations(Experimented(course(12, **run), points, True)) if one.name == NAME)
    assert (one.covered, one.steps, one.to_cover) == expected
    assert one.why or one.covered == "yes"

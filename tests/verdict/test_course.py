"""What a run did tells what an experiment on it crossed, and where it should have been resumed."""

import pytest
import torch
from torch.optim import lr_scheduler

from ckptcheck.verdict.course import Course, WarmUp, warm_up
from ckptcheck.verdict.crossed import Experimented, situations
from ckptcheck.verdict.scouting import picked_points, reasons_for

LINEAR = {"start_factor": 0.1, "total_iters": 5}


def rates(make, steps=12, every=1):
    """The learning rate that torch's own scheduler has in each step, by step; it moves every so many of them."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, found = make(optimizer), {}
    for step in range(1, steps + 1):
        found[step] = optimizer.param_groups[0]["lr"]
        optimizer.step()
        if step % every == 0:
            scheduler.step()
    return found


WARM_UPS = [
    # Five moves: steps 2 to 6 rise, step 7 does not.
    (lambda one: lr_scheduler.LinearLR(one, **LINEAR), {}, WarmUp(6, 7)),
    # One move every third step: steps 4, 7, ..., 16 rise, step 19 should have.
    (lambda one: lr_scheduler.LinearLR(one, **LINEAR), {"every": 3, "steps": 20}, WarmUp(16, 19)),
    (lambda one: lr_scheduler.LinearLR(one, **LINEAR), {"every": 3, "steps": 18}, WarmUp(16, None)),
    (lambda one: lr_scheduler.LinearLR(one, **LINEAR), {"steps": 6}, WarmUp(6, None)),
    # Up over 4 of 10 steps (pct_start 0.4: the peak is move 3), then down at once.
    (lambda one: lr_scheduler.OneCycleLR(one, 1.0, total_steps=10, pct_start=0.4), {"steps": 9}, WarmUp(4, 5)),
    (lambda one: lr_scheduler.ConstantLR(one, 1.0), {}, None),
    (lambda one: lr_scheduler.CosineAnnealingLR(one, 10), {}, None),
    # It falls, and jumps up again after the fourth step: a restart is no warm-up.
    (lambda one: lr_scheduler.CosineAnnealingWarmRestarts(one, 4), {}, None),
    (lambda one: lr_scheduler.StepLR(one, 3), {}, None),
]


@pytest.mark.parametrize(("make", "options", "expected"), WARM_UPS)
def test_a_warm_up_ends_where_the_rate_rises_no_further(make, options, expected):
    assert warm_up(rates(make, **options)) == expected


def test_a_rate_that_rises_unevenly_has_stopped_when_it_rests_longer_than_ever():
    assert warm_up(dict(enumerate([1, 2, 3, 3, 4, 4], 1))) == WarmUp(5, None)
    assert warm_up(dict(enumerate([1, 2, 3, 3, 4, 4, 4], 1))) == WarmUp(5, 7)


def course(steps, **more):
    empty = dict.fromkeys(("idle", "overflows", "windows", "rate_changes", "regroupings", "averages"), frozenset())
    return Course(tuple(range(1, steps + 1)), **{"keeps": frozenset(), "warm_ups": (), "epochs": {}} | empty | more)


PICKED = [
    (course(2), (1,)),
    (course(3), (1, 2)),
    (course(20), (5, 10)),
    (course(20, windows={7, 8, 10, 11, 19, 20}), (5, 10)),
    (course(20, windows={1, 2}), (2, 10)),
    (course(20, overflows={3}, windows={1, 2}), (2, 3, 10)),
    (course(20, overflows={1}), (5, 10)),  # nothing can be saved before it
    (course(20, epochs={17: "x"}), (10, 16, 17)),
    (course(20, epochs={9: "x", 17: "x"}), (8, 9)),
    (course(20, epochs={20: "x"}), (10, 19)),
    (course(20, warm_ups=(WarmUp(16, 17),)), (10, 14)),
    (course(20, warm_ups=(WarmUp(20, None),)), (5, 10)),
    (course(20, regroupings={12}), (10, 12)),
    (course(40, overflows={4}, regroupings={12}, epochs={17: "x"}, warm_ups=(WarmUp(30, 31),), windows={20}),
     (3, 10, 16, 17, 20, 28)),
]  # fmt: skip


@pytest.mark.parametrize(("run", "points"), PICKED)
def test_auto_picks_where_something_is_about_to_happen_or_just_has(run, points):
    assert picked_points(run) == points


def test_a_point_is_told_with_all_that_speaks_for_it():
    run = course(8, overflows={3}, windows={2, 4}, epochs={5: "x"}, regroupings={6}, warm_ups=(WarmUp(6, 7),))
    warm, change, epoch = "before the end of the warm-up", "a change of the trainable set", "the end of an epoch"
    assert [reasons_for(run, step) for step in range(1, 8)] == [
        [], ["in the middle of an accumulation window", "right before an overflow"], ["right after an overflow"],
        ["in the middle of an accumulation window", f"right before {epoch}", warm, f"before {change}",
         "half of the steps"],
        [f"right after {epoch}"], [f"right after {change}"], [],
    ]  # fmt: skip


EPOCH, WARM_UP, RATE = "the end of an epoch", "the end of the warm-up", "a change of the learning rate"
TRAINED, OVERFLOW, RIGHT_AFTER = "a change of the trainable set", "an overflow", "a resume right after an overflow"
WINDOW, IDLE = "a resume in the middle of an accumulation window", "a step without an update"
SCALED, UPDATED, COUNTED = {"keeps": {"scaler"}}, {"keeps": {"updates"}}, {"counts_data": True}
ENDS = {"epochs": {9: "x", 17: "y"}}
WARM = {"warm_ups": (WarmUp(16, 17),)}
LONGER = "more --steps"
NOT = "does not apply"
CROSSED = [
    # the course of 20 steps, the points, the situation: covered, in these steps, what would cover it
    (ENDS, (8,), EPOCH, ("yes", (9, 17), "")),
    (ENDS, (9,), EPOCH, ("yes", (17,), "")),
    (ENDS, (17, 18), EPOCH, ("no", (), "--resume-at 16")),
    (COUNTED, (10,), EPOCH, ("no", (), LONGER)),
    ({}, (10,), EPOCH, ("no", (), "")),
    ({"epochs": {1: "x"}}, (10,), EPOCH, ("no", (), LONGER)),
    (WARM, (14,), WARM_UP, ("yes", (17,), "")),
    (WARM, (15,), WARM_UP, ("no", (), "--resume-at 14")),  # what step 16 uses was set before the save
    (WARM, (10, 18), WARM_UP, ("yes", (17,), "")),
    ({"warm_ups": (WarmUp(2, 3),)}, (5,), WARM_UP, ("no", (), "")),  # nothing comes before it
    ({"warm_ups": (WarmUp(20, None),)}, (5,), WARM_UP, ("no", (), LONGER)),
    ({}, (5,), WARM_UP, (NOT, (), "")),
    ({"rate_changes": {6, 8}}, (5,), RATE, ("yes", (8,), "")),
    ({"rate_changes": {6}}, (5,), RATE, ("no", (), "--resume-at 4")),
    ({"rate_changes": {6}, "pending": {5}}, (5,), RATE, ("yes", (6,), "")),
    ({"keeps": {"schedule"}}, (5,), RATE, ("no", (), LONGER)),
    ({}, (5,), RATE, (NOT, (), "")),
    ({"regroupings": {6}}, (5,), TRAINED, ("no", (), "--resume-at 4")),
    ({"regroupings": {6}, "pending": {5}}, (5,), TRAINED, ("yes", (6,), "")),
    ({"regroupings": {6}, "pending": {5}}, (3, 5), TRAINED, ("yes", (6,), "")),
    ({}, (5,), TRAINED, (NOT, (), "")),
    (SCALED, (10,), OVERFLOW, ("no", (), LONGER)),
    (SCALED, (10,), RIGHT_AFTER, ("no", (), LONGER)),
    ({**SCALED, "overflows": {1}}, (10,), OVERFLOW, ("no", (), LONGER)),
    ({**SCALED, "overflows": {1, 12}}, (11,), OVERFLOW, ("yes", (12,), "")),
    ({**SCALED, "overflows": {1, 12}}, (11,), RIGHT_AFTER, ("no", (), "--resume-at 12")),
    ({**SCALED, "overflows": {20}}, (11,), RIGHT_AFTER, ("no", (), LONGER)),
    ({**SCALED, "overflows": {12}}, (11, 12), RIGHT_AFTER, ("yes", (12,), "")),
    ({}, (10,), RIGHT_AFTER, (NOT, (), "")),
    ({**UPDATED, "idle": {7, 8}, "windows": {7, 8}}, (8, 9), WINDOW, ("yes", (8,), "")),
    ({**UPDATED, "idle": {7, 8}, "windows": {7, 8}}, (9,), WINDOW, ("no", (), "--resume-at 8")),
    ({**UPDATED, "idle": {20}, "windows": {20}}, (9,), WINDOW, ("no", (), LONGER)),
    ({**UPDATED, "idle": {7}}, (7,), WINDOW, (NOT, (), "")),  # it was skipped, and nothing kept
    ({**UPDATED, "idle": {7}}, (6,), IDLE, ("yes", (7,), "")),
    ({**UPDATED, "idle": {7}}, (7,), IDLE, ("no", (), "--resume-at 6")),
    (UPDATED, (7,), IDLE, (NOT, (), "")),
]


@pytest.mark.parametrize(("run", "points", "name", "expected"), CROSSED)
def test_a_situation_is_told_with_what_would_cover_it(run, points, name, expected):
    options = dict(run)
    pending = frozenset(options.pop("pending", ()))
    done = Experimented(course(20, **options), points, True, (), pending, pending)
    one = next(one for one in situations(done) if one.name == name)
    assert (one.covered, one.steps, one.to_cover) == expected
    assert one.why or one.covered == "yes"


def test_each_situation_is_told_once_whatever_was_done():
    named = [[one.name for one in situations(Experimented(course(20, **run), points, False))] for run, points, *_ in
             [({}, (5,)), ({**SCALED, **ENDS}, (5, 9))]]  # fmt: skip
    assert named[0] == named[1]
    assert len(named[0]) == len(set(named[0])) == 14

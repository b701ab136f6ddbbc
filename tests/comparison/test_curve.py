"""What a curve keeps where tensors times steps are many, and what it says of the rest."""

import numpy as np
import pytest

from ckptcheck.comparison.curve import NO_ROOM, REASONS, TOO_MUCH, Curve, few_of
from ckptcheck.comparison.spread import AGREE, APART, LEFT_ONLY, RIGHT_ONLY, UNLIKE, Spread
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import Item

SPEC = TensorSpec("float32", (4,))
STEPS = tuple(range(11, 31))


def spread(rows, steps=STEPS, spec=SPEC) -> Spread:
    items = tuple(Item("param", f"p{place}") for place in range(len(rows)))
    return Spread(steps, items, (spec,) * len(rows), np.array(rows, np.int8))


def apart(count, steps=STEPS) -> Spread:
    return spread([[APART] * len(steps)] * count, steps)


def difference(step) -> TensorDifference:
    return TensorDifference(4, 2, max_abs=step / 8, rel_l2=step / 4, max_ulp=2**40 + step)


def filled(curve: Curve) -> list:
    for step in curve.spread.steps:
        for item in curve.wanted_at(step):
            curve.put(step, item, difference(step))
    return list(curve.columns())


def laid_out(curve: Curve) -> set:
    return {(item, step) for steps, items in curve.wanted() for item, first in items for step in steps if step >= first}


def test_all_steps_of_all_tensors_are_kept_where_they_are_few():
    curve = Curve(apart(5), [0.0] * 5, 1 << 40, most_cells=100)
    assert laid_out(curve) == {(item, step) for item in curve.spread.items for step in STEPS}
    for column in filled(curve):
        assert column.steps == STEPS
        assert column.max_abs == [step / 8 for step in STEPS]
        assert column.max_ulp == [2**40 + step for step in STEPS], "exact beyond float32"
        assert (column.differing, column.reasons) == ([2] * 20, {})


def test_beyond_it_the_first_and_furthest_keep_every_step_and_the_others_a_few():
    rows = [[AGREE] * (place == 0) + [APART] * (20 - (place == 0)) for place in range(10)]
    curve = Curve(spread(rows), [9.0, 1.0, 5.0, *[0.5] * 7], 1 << 40, most_cells=100)
    wanted = laid_out(curve)
    columns = filled(curve)
    assert curve.few_steps == (11, 12, 16, 20, 30)
    assert [place for place, column in enumerate(columns) if column.steps == STEPS] == [1, 2, 3]
    assert curve.every == 3
    assert sum(len(column.steps) for column in columns) <= 100
    assert columns[0].steps == curve.few_steps
    assert columns[0].max_abs == [0.0 if step == 11 else step / 8 for step in curve.few_steps]
    assert not any(column.reasons for column in columns)
    assert wanted == {
        (item, step) for item, column in zip(curve.spread.items, columns, strict=True)
        for step in column.steps if step >= curve.spread.first_of(int(item.name[1:]))
    }  # fmt: skip


def test_memory_does_not_grow_with_tensors_times_steps():
    steps = tuple(range(1, 1001))
    curve = Curve(apart(20_000, steps), [0.0] * 20_000, 1 << 40)
    assert sum(len(column.steps) for column in curve.columns()) == 100 * 1000 + 19_900 * 5
    assert curve.few_steps == (1, 2, 10, 500, 1000)
    assert sum(len(items) for _, items in curve.wanted()) == 20_000


@pytest.mark.parametrize(("size", "count", "chosen"), [
    (1, 2, (1,)), (2, 2, (1, 2)), (30, 2, (1, 30)), (30, 3, (1, 15, 30)), (30, 5, (1, 2, 10, 15, 30)),
    (5, 9, (1, 2, 3, 4, 5)),
])  # fmt: skip
def test_the_few_steps_are_those_a_reader_asks_for(size, count, chosen):
    assert few_of(range(1, size + 1), count) == chosen


def test_what_cannot_be_compared_says_why_and_is_not_laid_out():
    curve = Curve(spread([[AGREE, LEFT_ONLY, RIGHT_ONLY, UNLIKE, APART]], (1, 2, 3, 4, 5)), [0.0], 1 << 40)
    (column,) = filled(curve)
    assert column.differing == [0, None, None, None, 2]
    assert column.max_abs == [0.0, None, None, None, 5 / 8]
    assert column.max_ulp == [0, None, None, None, 2**40 + 5]
    assert column.reasons == {2: REASONS[LEFT_ONLY], 3: REASONS[RIGHT_ONLY], 4: REASONS[UNLIKE]}


def test_a_pair_without_numbers_was_measured_all_the_same():
    curve = Curve(spread([[APART, AGREE]], (1, 2), TensorSpec("int64", (4,))), [0.0], 1 << 40)
    curve.put(1, curve.spread.items[0], TensorDifference(4, 3, max_abs=None, rel_l2=None))
    (column,) = curve.columns()
    assert (column.max_abs, column.rel_l2, column.max_ulp) == ([None, 0.0], [None, 0.0], [None, None])
    assert (column.differing, column.reasons) == ([3, 0], {})


def test_what_the_disk_has_no_room_for_is_left_out_the_last_first():
    curve = Curve(apart(3, (1, 2)), [0.0, 3.0, 2.0], 2 * SPEC.nbytes)
    assert {item for item, _ in laid_out(curve)} == {*curve.spread.items[1:]}
    columns = filled(curve)
    assert [column.reasons for column in columns] == [{1: REASONS[NO_ROOM], 2: REASONS[NO_ROOM]}, {}, {}]


def test_what_is_dropped_has_no_numbers_and_what_agrees_is_not_dropped():
    curve = Curve(spread([[APART, APART, AGREE], [APART, APART, APART]], (1, 2, 3)), [0.0, 0.0], 1 << 40)
    filled(curve)
    curve.drop(1, curve.spread.items[0])
    curve.drop(3, curve.spread.items[0])
    curve.drop(7, curve.spread.items[0])
    curve.drop(1, Item("param", "stranger"))
    curve.drop_step(2, TOO_MUCH)
    first, second = curve.columns()
    assert first.differing == [None, None, 0]
    assert second.differing == [2, None, 2]
    assert second.reasons == {2: REASONS[TOO_MUCH]}
    curve.put(2, curve.spread.items[1], difference(2))
    assert list(curve.columns())[1].differing == [2, None, 2], "what was given up stays so"

"""Which tensors two traces disagree in, and at which steps."""

import numpy as np

from ckptcheck.comparison.spread import AGREE, APART, LEFT_ONLY, RIGHT_ONLY, UNLIKE, alike, norm_gaps, spread_of
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import Item
from ckptcheck.trace.measuring import plain
from tests.comparison.written import gradient, groups, steps, tensor, write

WEIGHT, MOMENT, GRAD = Item("param", "w"), Item("state", "w", "exp_avg", 0), Item("grad", "w")
COUNT, MEAN, LOSS = Item("state", "w", "step", 0), Item("buffer", "mean"), Item("loss", "returned")
MEMBERS = groups([["w"]])


def spread(tmp_path, left, right):
    traces = [write(tmp_path / f"{name}.trace", steps(*[MEMBERS | one for one in side]))
              for name, side in (("left", left), ("right", right))]  # fmt: skip
    return spread_of(*traces, range(1, len(left) + 1)), traces


def test_every_tensor_that_differs_has_a_row_in_order_of_the_first_step(tmp_path):
    left = [{WEIGHT: tensor(1), MOMENT: tensor(1), MEAN: tensor(1), LOSS: tensor(1)} for _ in range(3)]
    right = [
        {WEIGHT: tensor(1), MOMENT: tensor(2), MEAN: tensor(1), LOSS: tensor(2)},
        {WEIGHT: tensor(2), MOMENT: tensor(1), MEAN: tensor(1), LOSS: tensor(2)},
        {WEIGHT: tensor(2), MOMENT: tensor(2), MEAN: tensor(1), LOSS: tensor(2)},
    ]
    found, _ = spread(tmp_path, left, right)
    assert found.items == (MOMENT, WEIGHT), "a loss is no tensor of the training state, and the buffer agrees"
    assert found.cells.tolist() == [[APART, AGREE, APART], [AGREE, APART, APART]]
    assert [found.first_of(0), found.first_of(1)] == [1, 2]
    assert [found.count_of(0), found.count_of(1)] == [2, 2]
    assert [str(one) for one in found.specs] == ["float32[2, 2]"] * 2


def test_what_cannot_be_held_against_each_other_is_told_apart(tmp_path):
    left = [
        {MOMENT: tensor(1), GRAD: gradient(1), MEAN: tensor(1), COUNT: plain(1)},
        {GRAD: gradient(None), MEAN: tensor(1, 4), COUNT: plain(2)},
        {MOMENT: tensor(1), GRAD: gradient(None), MEAN: tensor(1), COUNT: plain(3)},
    ]
    right = [
        {GRAD: gradient(None), MEAN: tensor(2, dtype="float64"), COUNT: plain(7)},
        {MOMENT: tensor(1), GRAD: gradient(1), MEAN: tensor(2), COUNT: tensor(8)},
        {MOMENT: plain(1), GRAD: gradient(None), MEAN: tensor(1), COUNT: plain(3)},
    ]
    found, _ = spread(tmp_path, left, right)
    cells = dict(zip(found.items, found.cells.tolist(), strict=True))
    assert cells == {
        MOMENT: [LEFT_ONLY, RIGHT_ONLY, UNLIKE],
        GRAD: [LEFT_ONLY, RIGHT_ONLY, AGREE],
        MEAN: [APART, UNLIKE, AGREE],
        COUNT: [AGREE, UNLIKE, AGREE],
    }, "two plain values are no tensors"


def test_equal_traces_have_no_row(tmp_path):
    same = [{WEIGHT: tensor(1), COUNT: plain(1)}] * 2
    found, traces = spread(tmp_path, same, same)
    assert (found.items, found.specs, found.cells.shape) == ((), (), (0, 2))
    assert norm_gaps(found, *traces) == []
    assert spread_of(*traces, []).items == (), "as where the resumed run raised in its first step"


def test_norms_tell_who_is_furthest_apart_at_the_end(tmp_path):
    sizes = {Item("param", name): norms for name, norms in
             {"a": (4.0, 5.0), "b": (2.0, 1.0), "c": (0.0, 3.0), "d": (1.0, float("inf"))}.items()}  # fmt: skip
    left = [{item: tensor(0)._replace(norm=one) for item, (one, _) in sizes.items()}]
    right = [{item: tensor(1)._replace(norm=other) for item, (_, other) in sizes.items()}]
    found, traces = spread(tmp_path, left, right)
    gaps = dict(zip([item.name for item in found.items], norm_gaps(found, *traces), strict=True))
    assert gaps == {"a": 0.25, "b": 0.5, "c": 0.0, "d": np.inf}


def test_tensors_of_one_shape_that_hold_something_can_be_held_against_each_other():
    one, scalar, empty = (TensorSpec("float32", shape) for shape in ((1,), (), (0,)))
    assert alike(one, TensorSpec("float64", (1,)))
    assert alike(scalar, scalar)
    assert not any((alike(one, scalar), alike(empty, empty), alike(None, one), alike(one, None), alike(None, None)))

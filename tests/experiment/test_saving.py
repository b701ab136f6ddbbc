"""What a save moves in the run that saves, and what is equal beside noise, over traces written by hand."""

import pytest

from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.experiment.floor import Floor, Gap
from ckptcheck.experiment.noise import ENOUGH, Noise, assess, touched_by_save
from ckptcheck.finding import Compared
from ckptcheck.trace.items import AFTER_SAVE, SAVED, Item
from ckptcheck.trace.measuring import plain
from tests.comparison.written import gradient, steps, tensor, write

W, B, GRAD = Item("param", "w"), Item("param", "b"), Item("grad", "w")
TORCH, NUMPY = Item("rng", "torch"), Item("rng", "numpy")


def test_a_save_touches_what_it_changes_adds_or_removes_and_no_idle_generator(tmp_path):
    before = {W: tensor(1), B: tensor(2), TORCH: tensor(3), NUMPY: tensor(4)}
    after = {W: tensor(5), GRAD: tensor(6), TORCH: tensor(7), NUMPY: tensor(8)}
    trace = write(tmp_path / "one.trace", {(3, SAVED): before, (3, AFTER_SAVE): after, (4, SAVED): before,
                                           (4, AFTER_SAVE): before})  # fmt: skip
    touched = touched_by_save(trace, 3, frozenset({"torch"}))
    sides = {one.item: (one.left and one.left.digest, one.right and one.right.digest) for one in touched}
    assert sides == {
        W: (tensor(1).digest, tensor(5).digest), B: (tensor(2).digest, None), GRAD: (None, tensor(6).digest),
        TORCH: (tensor(3).digest, tensor(7).digest),
    }  # fmt: skip
    assert touched_by_save(trace, 4, frozenset({"torch", "numpy"})) == ()
    trace.close()


@pytest.mark.parametrize("lacking", ["reference", "repeats"])
def test_what_equal_runs_have_on_one_side_only_has_no_gap(tmp_path, lacking):
    def run(name, has, value):
        samples = {W: tensor(value), GRAD: gradient(value) if has else gradient(None)}
        return write(tmp_path / f"{name}.trace", steps(samples))

    traces = [run(name, (name == "reference") is (lacking != "reference"), place)
              for place, name in enumerate(("reference", "one", "two"))]  # fmt: skip
    noise = assess(traces[0], traces[1:])
    assert noise.floor == {W: 1, GRAD: 1}
    assert noise.gaps == {"param": 0.0, "grad": 0.0}
    for one in traces:
        one.close()


@pytest.mark.parametrize(("pairs", "judged"), [(ENOUGH - 1, []), (ENOUGH, ["b"])])
def test_what_lies_behind_noise_is_judged_where_equal_runs_agreed_on_it_often_enough(pairs, judged):
    noisy = Difference(2, W, tensor(1), tensor(2))
    noise = Noise({W: 2}, noisy, {"param": 0.0}, None, repeated=True, pairs=pairs)
    loss = Difference(5, Item("loss"), plain(1.0), plain(2.0))  # it follows from what is noisy
    found = noise.strip(TraceDiff((4, 5), Compared(), (loss, Difference(5, B, tensor(3), tensor(4)))), False)
    assert [one.item.name for one in found.differences] == judged


def test_a_kind_that_was_equal_at_a_step_takes_the_widest_gap_that_was_seen():
    equal = {(4, GRAD): Gap(0.25, 1.0), (4, B): Gap(0.5, 2.0)}
    floor = Floor(2, equal, {}, steady_from=4)
    assert floor.allowed(4, GRAD) == 10 * 0.25
    assert floor.allowed(4, Item("buffer", "mean")) == 10 * 0.5
    assert floor.allowed(5, B) == 10 * 0.5, "noise that was seen stays"

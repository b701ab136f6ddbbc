"""Two traces compared by step, stage and name."""

import tempfile
from pathlib import Path

import pytest

from ckptcheck.comparison.traces import UNMATCHED, Difference, compare_traces
from ckptcheck.errors import TraceError
from ckptcheck.finding import Compared
from ckptcheck.trace.items import END, ZERO, Item
from ckptcheck.trace.measuring import plain
from tests.comparison.written import frozen, gradient, groups, steps, tensor, write

W, B = Item("param", "w"), Item("param", "b")
STATE = Item("state", "w", "exp_avg", 0)
GRAD = Item("grad", "w")
RNG = Item("rng", "torch")
IN_ONE = groups([["w", "b"]])


def hyper(key: str, group: int = 0, optimizer: int = 0) -> Item:
    return Item("hyper", "", key, optimizer, group)


@pytest.fixture
def compare(tmp_path):
    def run(left, right, **span):
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        traces = [write(folder / f"{name}.trace", one) for name, one in (("left", left), ("right", right))]
        try:
            return compare_traces(*traces, **span)
        finally:
            for one in traces:
                one.close()

    return run


def places(diff) -> list[tuple[int, Item]]:
    return [(one.step, one.item) for one in diff.differences]


def test_equal_traces_have_no_difference_and_everything_is_counted(compare):
    one = {W: tensor(1, 4, 4), B: tensor(2, 4), STATE: tensor(3, 4, 4), hyper("lr"): plain(0.1), **IN_ONE}
    diff = compare(steps(one, one), steps(one, one))
    assert diff.first is None
    assert diff.at_first_stage() == ()
    assert diff.steps == (1, 2)
    assert diff.compared == Compared(steps=2, parameters=2, state_tensors=1, bytes=2 * 4 * (16 + 4 + 16))


@pytest.mark.parametrize(
    ("item", "left", "right"),
    [
        (W, tensor(1), tensor(2)),
        (W, tensor("a content of 1"), tensor("a content of 2")),  # digests that differ in their last bytes only
        (W, tensor(1), tensor(1, dtype="float16")),
        (W, tensor(1, 4), tensor(1, 2, 2)),
        (W, tensor(1), None),
        (W, None, tensor(1)),
        (STATE, tensor(1), tensor(2)),
        (STATE, tensor(1), None),
        (Item("state", "w", "step", 0), tensor(1), plain(1)),
        (GRAD, gradient(1), gradient(2)),
        (GRAD, gradient(1, ZERO), gradient(None)),
        (GRAD, gradient(1, ZERO), gradient(1)),
        (Item("buffer", "mean"), tensor(1), tensor(2)),
        (Item("inputs", "", "0"), tensor(1), tensor(2)),
        (Item("inputs", "", "0", part=1), tensor(1), None),
        (Item("loss", "returned"), plain(0.5), plain(0.25)),
        (Item("loss", "returned"), plain(0.0), plain(-0.0)),
        (Item("updates", optimizer=0), plain(1), plain(0)),
        (Item("scaler", "scale"), plain(2.0), plain(1.0)),
        (Item("schedule", "last_epoch"), plain(3), plain(0)),
        (Item("ema", "updates"), plain(3), plain(0)),
        (Item("data", "position"), plain(3), plain(0)),
        (Item("extra", "best"), plain(3), plain(0)),
        (hyper("lr"), plain(0.1), plain(0.2)),
        (hyper("lr", 1), plain(0.1), None),
        (Item("structure", "frozen"), plain('["w"]'), plain("[]")),
    ],
)
def test_whatever_differs_is_a_difference_at_its_step(compare, item, left, right):
    sides = [{**IN_ONE, **({item: one} if one is not None else {})} for one in (left, right)]
    diff = compare(steps(sides[0], sides[0], sides[0]), steps(sides[0], sides[1], sides[0]))
    assert places(diff) == [(2, item)]
    assert diff.first.stage == item.stage
    assert (diff.first.left is None, diff.first.right is None) == (left is None, right is None)


@pytest.mark.parametrize(
    ("item", "left", "right"),
    [
        (Item("rng", "numpy"), tensor(1), None),
        (Item("rng", "cuda:0"), None, tensor(1)),
        (hyper("foreach"), plain(None), plain(True)),
        (hyper("fused"), plain(False), plain(True)),
        (Item("grad", "outside"), gradient(1), gradient(2)),
        (Item("grad", "outside"), gradient(1), gradient(None)),
    ],
)
def test_what_has_no_meaning_of_its_own_is_no_difference(compare, item, left, right):
    sides = [{**IN_ONE, W: tensor(1), **({item: one} if one is not None else {})} for one in (left, right)]
    assert compare(steps(sides[0]), steps(sides[1])).first is None


def test_without_an_optimizer_every_gradient_counts(compare):
    diff = compare(steps({GRAD: gradient(1)}), steps({GRAD: gradient(2)}))
    assert places(diff) == [(1, GRAD)]


def test_differences_come_in_order_of_step_and_cause(compare):
    items = [Item("extra", "x"), Item("data", "x"), Item("ema", "x"), Item("schedule", "x"), W, STATE,
             Item("scaler", "x"), GRAD, Item("loss", "x"), Item("buffer", "x"), Item("inputs", "x"),
             hyper("lr"), Item("structure", "frozen"), RNG]  # fmt: skip
    left, right = ({**IN_ONE, **dict.fromkeys(items, tensor(value))} for value in (1, 2))
    diff = compare(steps(left, left), steps(left, right))
    assert [one.item for one in diff.differences] == items[::-1]
    diff = compare(steps(left, left), steps(right, right))
    assert [one.step for one in diff.differences] == [1] * 14 + [2] * 14
    assert [one.item for one in diff.at_first_stage()] == [RNG]


def test_of_several_calls_in_a_step_the_first_comes_first(compare):
    items = [Item("inputs", "model", "0", part=part) for part in (0, 1, 10, 2)]
    left, right = (dict.fromkeys(items, tensor(value)) for value in (1, 2))
    assert [one.item.part for one in compare(steps(left), steps(right)).differences] == [0, 1, 2, 10]


def test_only_steps_of_the_span_that_both_have_are_compared(compare):
    one = {W: tensor(1)}
    diff = compare(steps(*[one] * 6), steps(*[one] * 6, first=4))
    assert (diff.steps, diff.left_only, diff.right_only) == ((4, 5, 6), (), ())
    diff = compare(steps(*[one] * 6), steps(*[one] * 6), first=3, last=4)
    assert diff.steps == (3, 4)
    nothing = compare(steps(one), steps(one, first=5))
    assert (nothing.steps, nothing.compared, nothing.first) == ((), Compared(), None)


def test_steps_that_one_side_lacks_within_the_span_are_told(compare):
    one = {W: tensor(1)}
    whole = steps(*[one] * 6)
    gap = {moment: samples for moment, samples in whole.items() if moment[0] not in (3, 4)}
    assert compare(whole, gap).left_only == (3, 4)
    assert compare(gap, whole).right_only == (3, 4)
    assert compare(whole, gap).steps == (1, 2, 5, 6)


def test_of_thinned_traces_only_steps_that_both_hold_whole_are_compared(tmp_path):
    whole, begin = {W: tensor(1), RNG: plain(1)}, {RNG: plain(2), hyper("lr"): plain(0.1)}
    left = {(3, "step"): whole, (4, "step"): begin, (6, "step"): whole, (7, "step"): begin, (12, "step"): whole}
    right = {(4, "step"): whole, (5, "step"): begin, (7, "step"): whole, (12, "step"): {W: tensor(2), RNG: plain(3)}}
    sides = [write(tmp_path / f"{name}.trace", one, every=3) for name, one in (("left", left), ("right", right))]
    diff = compare_traces(*sides)
    assert (diff.steps, diff.left_only, diff.right_only) == ((12,), (), ())
    assert places(diff) == [(12, RNG), (12, W)], "whether the generator was set anew within the step is not seen"
    for one in sides:
        one.close()


def test_digests_of_two_algorithms_are_never_compared(tmp_path):
    traces = [write(tmp_path / f"{name}.trace", steps({W: tensor(1)}), name) for name in ("xxh3_128", "linear_128")]
    with pytest.raises(TraceError, match="unlike digests"):
        compare_traces(*traces)
    for one in traces:
        one.close()


def values(*rates: float) -> dict:
    return {hyper("lr", group): plain(rate) for group, rate in enumerate(rates)}


def test_groups_in_another_order_are_compared_by_their_members(compare):
    left = {**groups([["w"], ["b"]]), **values(0.1, 0.2)}
    right = {**groups([["b"], ["w"]]), **values(0.2, 0.1)}
    assert compare(steps(left), steps(right)).first is None
    right = {**groups([["b"], ["w"]]), **values(0.1, 0.2)}
    assert places(compare(steps(left), steps(right))) == [(1, hyper("lr", 0)), (1, hyper("lr", 1))]


def test_groups_that_change_their_order_between_steps_are_matched_at_each(compare):
    left = {**groups([["w"], ["b"]]), **values(0.1, 0.2)}
    other = {**groups([["b"], ["w"]]), **values(0.2, 0.1)}
    assert compare(steps(left, left, left), steps(left, other, left)).first is None
    wrong = {**groups([["b"], ["w"]]), **values(0.1, 0.2)}
    diff = compare(steps(left, left, left), steps(left, wrong, left))
    assert places(diff) == [(2, hyper("lr", 0)), (2, hyper("lr", 1))]


def test_gradients_are_judged_by_the_groups_of_their_own_step(compare):
    sides = [{GRAD: gradient(value), W: tensor(1)} for value in (1, 2)]
    outside, inside = groups([["b"]]), groups([["b", "w"]])
    pair = [steps({**one, **outside}, {**one, **inside}, {**one, **outside}) for one in sides]
    assert places(compare(*pair)) == [(2, GRAD)]


def test_other_groups_are_a_difference_that_names_them(compare):
    left = {**groups([["w"], ["b"]]), **values(0.1, 0.2)}
    right = {**groups([["w", "b"]]), **values(0.1)}
    diff = compare(steps(left), steps(right))
    assert places(diff) == [(1, Item("structure", "groups")), (1, hyper("lr", 1))]
    assert '["w"], ["b"]' in diff.first.left.value
    assert '["w", "b"]' in diff.first.right.value


def test_a_group_without_a_partner_is_told_apart(compare):
    left = {**groups([["w"]]), **values(0.1)}
    right = {**groups([["w"], ["b"]]), **values(0.1, 0.2)}
    assert places(compare(steps(left), steps(right))) == [
        (1, Item("structure", "groups")),
        (1, hyper("lr", 1 + UNMATCHED)),
    ]


def test_an_optimizer_that_one_side_lacks_is_a_difference(compare):
    one = {**groups([["w"]]), hyper("lr"): plain(0.1)}
    two = {**groups([["w"]], [["b"]]), hyper("lr"): plain(0.1), hyper("lr", 0, 1): plain(0.3)}
    for left, right in ((one, two), (two, one)):
        assert Item("structure", "groups") in [item for _, item in places(compare(steps(left), steps(right)))]
        assert hyper("lr", 0, 1) in [item for _, item in places(compare(steps(left), steps(right)))]


def test_a_generator_that_nothing_draws_from_is_taken_out(compare):
    left, right = ({RNG: tensor(value), W: tensor(1)} for value in (1, 2))
    diff = compare(steps(left, left), steps(right, right))
    assert diff.drawn == frozenset()
    assert diff.without({}).first is None
    assert diff.first.item == RNG


@pytest.mark.parametrize("side", [0, 1])
def test_a_generator_that_either_side_draws_from_counts(compare, side):
    still = [{RNG: tensor(1)}, {RNG: tensor(1)}]
    drawn = [{RNG: tensor(2)}, {RNG: tensor(3)}]
    pair = (still, drawn) if side else (drawn, still)
    diff = compare(steps(*pair[0]), steps(*pair[1]))
    assert diff.drawn == {"torch"}
    assert len(diff.without({}).differences) == 2


def test_what_the_last_step_draws_shows_at_the_end_of_the_run(compare):
    one = {(1, "step"): {RNG: tensor(1)}, (1, END): {RNG: tensor(2)}}
    assert compare(one, one).drawn == {"torch"}
    more = {(1, "step"): {RNG: tensor(1)}, (2, "step"): {RNG: tensor(2)}}
    assert compare(more, more, last=1).drawn == {"torch"}
    assert compare(more, more, first=2).drawn == frozenset()


def test_a_floor_takes_items_out_from_its_step_on_and_no_sooner(compare):
    left, right = ({W: tensor(value), B: tensor(value)} for value in (1, 2))
    diff = compare(steps(left, left, left), steps(right, right, right))
    assert diff.floor() == {W: 1, B: 1}
    kept = diff.without({W: 2})
    assert places(kept) == [(1, B), (1, W), (2, B), (3, B)]
    assert kept.compared == diff.compared


def test_a_difference_knows_its_place_in_time():
    one = Difference(3, GRAD, None, None)
    assert one.stage == "grad"
    assert Difference(3, W, None, None).order > one.order > Difference(2, W, None, None).order


def test_frozen_sets_are_told_with_their_names(compare):
    diff = compare(steps({**frozen("w"), W: tensor(1)}), steps({**frozen(), W: tensor(1)}))
    assert (diff.first.left.value, diff.first.right.value) == ('["w"]', "[]")


def test_a_generator_apart_to_the_end_is_a_difference_and_one_that_a_step_sets_anew_is_none(compare):
    def drawing(*seeds):
        return steps(*({**IN_ONE, RNG: tensor(seed)} for seed in seeds))

    apart = compare(drawing(1, 2, 3), drawing(1, 8, 9))
    assert places(apart) == [(2, RNG), (3, RNG)]
    assert apart.drawn == {"torch"}
    anew = compare(drawing(1, 2, 3), drawing(7, 2, 3))
    assert places(anew) == []
    assert anew.drawn == set()
    later = compare(drawing(1, 2, 3), drawing(1, 8, 3))
    assert places(later) == []
    assert later.drawn == {"torch"}

"""Freeze contracts held against a trace."""

import pytest

from ckptcheck.comparison.freezing import breaches
from ckptcheck.trace.items import LOAD, ZERO, Item
from ckptcheck.trace.measuring import plain
from tests.comparison.written import frozen, gradient, groups, tensor, write

W, GRAD, STATE = Item("param", "w"), Item("grad", "w"), Item("state", "w", "m", 0)


def moment(value=1, grad=None, state=None, updates=1, members=("w",), **more):
    samples = {W: tensor(value), Item("param", "free"): tensor(value, 3), Item("updates", optimizer=0): plain(updates)}
    samples |= {GRAD: grad if grad is not None else gradient(None), **groups([list(members)])}
    if state is not None:
        samples[STATE] = tensor(state)
    return samples | more.get("structure", frozen("w"))


@pytest.fixture
def hold(tmp_path):
    def run(contract, *moments, first=LOAD, pattern="w"):
        written = {(0, first): moments[0], **{(place + 1, "step"): one for place, one in enumerate(moments[1:])}}
        trace = write(tmp_path / "one.trace", written)
        found, unmatched = breaches(trace, {pattern: contract})
        trace.close()
        assert unmatched == ()
        return [(one.what, one.step) for one in found], found

    return run


@pytest.mark.parametrize(
    ("contract", "moments", "expected"),
    [
        ("hold", [moment(1, state=5)] * 3, []),
        ("hold", [moment(1), moment(1), moment(2), moment(3)], [("param", 2)]),
        ("no-update", [moment(1), moment(1), moment(2)], [("param", 2)]),
        ("no-grad", [moment(1), moment(2)], []),
        ("hold", [moment(state=5), moment(state=6)], [("state", 1)]),
        ("hold", [moment(), moment(state=6)], [("state", 1)]),
        ("hold", [moment(state=6), moment()], [("state", 1)]),
        ("no-update", [moment(state=5), moment(state=6)], []),
        ("hold", [moment(), moment(grad=gradient(0, ZERO))], [("gradient", 1)]),
        ("no-grad", [moment(), moment(grad=gradient(1)), moment(grad=gradient(2))], [("gradient", 1)]),
        ("no-grad", [moment(grad=gradient(1)), moment(grad=gradient(1))], []),
        ("no-grad", [moment(grad=gradient(1)), moment(grad=gradient(2))], [("gradient", 1)]),
        ("removed", [moment(), moment()], [("member", 1)]),
        ("removed", [moment(members=()), moment(2, members=(), grad=gradient(1))], []),
        ("reset", [moment(state=5), moment(state=5)], [("kept-state", 1)]),
        ("reset", [moment(state=5), moment()], []),
    ],
)
def test_the_first_breach_of_each_kind_is_told(hold, contract, moments, expected):
    assert hold(contract, *moments)[0] == expected


def test_a_contract_binds_while_a_parameter_is_frozen_if_it_ever_is(hold):
    free = {"structure": frozen()}
    assert hold("hold", moment(1, **free), moment(2, **free), moment(2), moment(2))[0] == []


def test_a_contract_on_what_is_never_frozen_binds_from_the_start(hold):
    free = {"structure": frozen()}
    assert hold("hold", moment(1, **free), moment(2, **free))[0] == [("param", 1)]


def test_a_freeze_that_begins_later_binds_from_its_step(hold):
    free = {"structure": frozen()}
    assert hold("hold", moment(1, **free), moment(2, **free), moment(3), moment(3))[0] == [("param", 2)]


@pytest.mark.parametrize(("updates", "members", "read"), [(1, ("w",), True), (0, ("w",), False), (1, (), False)])
def test_a_breach_says_what_the_gradient_was_and_whether_an_update_read_it(hold, updates, members, read):
    found = hold("hold", moment(), moment(2, gradient(0, ZERO), updates=updates, members=members))[1]
    assert {(one.presence, one.read) for one in found} == {("zero", read)}
    assert {one.what for one in found} == {"gradient", "param"}


def test_globs_choose_and_the_last_that_matches_binds(tmp_path):
    trace = write(tmp_path / "one.trace", {(0, LOAD): moment(1), (1, "step"): moment(2)})
    found, unmatched = breaches(trace, {"*": "no-update", "w": "no-grad", "nothing.*": "hold"})
    assert [(one.parameter, one.pattern) for one in found] == [("free", "*")]
    assert unmatched == ("nothing.*",)
    assert breaches(trace, {}) == ((), ())
    trace.close()


def test_what_happened_before_the_record_began_is_not_judged(hold):
    assert hold("hold", moment(1), moment(1), first="built")[0] == []

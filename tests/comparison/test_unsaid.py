"""What a trace does not say: by what it was asked to leave out, and where its script ended."""

import pytest

from ckptcheck.comparison.unsaid import Unsaid
from ckptcheck.trace.items import Item
from tests.comparison.written import steps, tensor, write

W, B, GRAD = Item("param", "fc.w"), Item("param", "out.b"), Item("grad", "fc.w")


@pytest.mark.parametrize(("header", "everywhere", "left_out"), [
    ({}, False, set()), ({"only": ["fc.*"]}, True, {B}), ({"grads": False}, True, {GRAD}),
    ({"only": ["fc.*"], "grads": False}, True, {B, GRAD}), ({"only": [], "grads": True}, False, set()),
])  # fmt: skip
def test_what_a_trace_was_asked_to_leave_out_may_be_there_nevertheless(tmp_path, header, everywhere, left_out):
    trace = write(tmp_path / "one.trace", steps({W: tensor(1)}, {W: tensor(2)}), **header)
    unsaid = Unsaid(trace)
    assert unsaid.everywhere is everywhere
    assert {one for one in (W, B, GRAD) if unsaid.leaves_out(one, 1)} == left_out
    assert not unsaid.is_last(2)
    trace.close()


def test_a_script_may_end_before_it_would_have_shown_the_last_step(tmp_path):
    trace = write(tmp_path / "one.trace", steps({W: tensor(1)}, {W: tensor(2)}), driver="script")
    unsaid = Unsaid(trace)
    assert [step for step in (0, 1, 2, 3) if unsaid.is_last(step)] == [2]
    assert not unsaid.everywhere
    trace.close()

"""Weights of one section under longer names: what stands before them is taken off, up to four parts."""

import pytest
import torch

from tests.comparison.held import checkpoint, diff

WEIGHTS = {"fc.weight": torch.arange(6.0), "fc.bias": torch.arange(3.0)}


@pytest.mark.parametrize(("begin", "taken"), [
    ("p.", 1), ("p.q.", 1), ("p.q.r.", 1), ("p.q.r.s.", 1), ("p.q.r.s.t.", 0)
])  # fmt: skip
def test_up_to_four_parts_are_taken_off_the_names(begin, taken):
    averaged = checkpoint({"w": torch.zeros(1)}, ema={f"{begin}{name}": value for name, value in WEIGHTS.items()})
    found = diff(averaged, checkpoint(WEIGHTS), left_section="ema")
    assert found.same_content is bool(taken)
    assert sum(f"{begin!r} was taken off the names on the left" in said for said in found.notes) == taken


@pytest.mark.parametrize(("begins", "taken"), [
    (("few.", "many.", "many."), "many."), (("a.", "shadow."), "shadow."), (("ema.", "z."), "ema."),
    (("a.", "z."), "a."),
])  # fmt: skip
def test_the_beginning_of_most_names_is_taken_off_and_of_equals_that_of_an_average(begins, taken):
    known = ["fc.weight", "fc.bias", "fc.bias"] if len(begins) == 3 else ["fc.weight", "fc.bias"]
    names = [f"{begin}{name}" for begin, name in zip(begins, ("fc.weight", "fc.weight", "fc.bias"), strict=False)]
    averaged = checkpoint({"w": torch.zeros(1)}, ema={name: WEIGHTS[name.partition(".")[2]] for name in names})
    found = diff(averaged, checkpoint({name: WEIGHTS[name] for name in known}), left_section="ema")
    assert [said for said in found.notes if "taken off" in said] == [f"{taken!r} was taken off the names on the left"]

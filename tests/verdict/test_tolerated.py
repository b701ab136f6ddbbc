"""What a tolerance lets through: numbers that training computes, and nothing else."""

import pytest

from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import NONE, NONZERO, ZERO, Item, Sample
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.cases import within_tolerance

SPEC = TensorSpec("float32", (4,))
TOLERANT = Policy(rtol=1e-3)


def tensor(digest: bytes, presence: int | None = None) -> Sample:
    return Sample(SPEC, digest, presence)


def number(value: float) -> Sample:
    return Sample(None, repr(value).encode(), value=value)


PAIR = tensor(b"left"), tensor(b"right")
CASES = [
    ("a weight within it", Item("param", "w"), *PAIR, True),
    ("a moment within it", Item("state", "w", "exp_avg", 0), *PAIR, True),
    ("a loss within it", Item("loss"), number(1.0), number(1.0009), True),
    ("a loss beyond it", Item("loss"), number(1.0), number(1.0011), False),
    ("a rate", Item("hyper", "", "lr", 0, 0), number(1.0), number(1.0001), False),
    ("a place in the schedule", Item("schedule", "_last_lr[0]"), number(1.0), number(1.0001), False),
    ("the scale of a scaler", Item("scaler", "scale"), number(1.0), number(1.0001), False),
    ("an input", Item("inputs", "0"), *PAIR, False),
    ("a generator", Item("rng", "torch"), *PAIR, False),
    ("a tensor that one side lacks", Item("param", "w"), PAIR[0], None, False),
    ("a gradient that is absent", Item("grad", "w"), tensor(b"left", ZERO), Sample(None, None, NONE), False),
    ("a gradient that is zero", Item("grad", "w"), tensor(b"left", NONZERO), tensor(b"right", ZERO), False),
    ("a gradient within it", Item("grad", "w"), tensor(b"left", NONZERO), tensor(b"right", NONZERO), True),
]


@pytest.mark.parametrize(("item", "left", "right", "passes"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_a_tolerance_lets_through(item: Item, left: Sample, right: Sample | None, passes: bool) -> None:
    diff = TraceDiff((3,), Compared(), (Difference(3, item, left, right),))
    within = {(3, item)}  # the tensors' elements, as a second pass has measured them
    assert (within_tolerance(diff, within, TOLERANT).differences == ()) is passes


def test_what_was_measured_beyond_it_or_at_another_step_stays() -> None:
    item = Item("param", "w")
    diff = TraceDiff((3,), Compared(), (Difference(3, item, *PAIR),))
    assert within_tolerance(diff, {(4, item)}, TOLERANT).differences == diff.differences
    assert within_tolerance(diff, set(), TOLERANT).differences == diff.differences


def test_without_being_asked_for_there_is_no_tolerance() -> None:
    diff = TraceDiff((3,), Compared(), (Difference(3, Item("loss"), number(1.0), number(1.0 + 1e-15)),))
    assert not Policy().tolerant
    assert within_tolerance(diff, set(), Policy()).differences == diff.differences

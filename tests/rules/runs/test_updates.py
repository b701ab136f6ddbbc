"""CK612 of the number of updates: told where nothing but their number explains what differs first."""

from typing import Any

import pytest

from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import judge
from ckptcheck.trace.items import Item
from ckptcheck.trace.measuring import plain
from tests.comparison.written import gradient, number, state_of, tensor

EQUAL = compare_states(state_of(), state_of())
UPDATES = Difference(4, Item("updates", optimizer=0), plain(1), plain(0))
SCALE = Difference(4, Item("scaler", "scale"), plain(1024.0), plain(512.0))
LOSS, W = Item("loss"), Item("grad", "w")


def told(*differences: Difference, **values: Any) -> list[str]:
    ordered = tuple(sorted(differences, key=lambda one: (one.order, one.item)))
    case = Case("resumed@3", 3, **{"load": EQUAL, "trajectory": TraceDiff((4,), Compared(steps=1), ordered), **values})
    return [one.message for one in judge(case).findings if one.code == "CK612"]


FIRST = [
    ("nothing but the updates", [], True),
    ("a gradient that was cleared for want of an update", [Difference(4, W, gradient(1), gradient(None))], True),
    ("a loss that only one run has", [Difference(4, LOSS, plain(1.0), None)], True),
    ("a loss that both have", [Difference(4, LOSS, plain(1.0), plain(2.0))], False),
    ("a buffer", [Difference(4, Item("buffer", "mean"), tensor(1), tensor(2))], False),
    ("a gradient that both have", [Difference(4, W, gradient(1), gradient(2))], False),
    ("an input that both have", [Difference(4, Item("inputs", "0"), tensor(1), tensor(2))], False),
]


@pytest.mark.parametrize(("before", "is_told"), [one[1:] for one in FIRST], ids=[one[0] for one in FIRST])
def test_updates_are_told_where_they_explain_what_differs_first(before: list[Difference], is_told: bool) -> None:
    said = told(*before, UPDATES)
    assert said == (["optimizer 0 makes 1 update in step 4 of the uninterrupted run and 0 updates in the resumed one"]
                    if is_told else [])  # fmt: skip


def test_updates_that_an_unloaded_scaler_skips_are_its_own() -> None:
    left, right = (state_of(sections={"scaler": {"scale": number(scale)}}) for scale in (1024.0, 512.0))
    assert told(UPDATES, load=compare_states(left, left))
    assert told(UPDATES, load=compare_states(left, right)) == []
    assert told(UPDATES, SCALE, load=compare_states(left, right)) == []

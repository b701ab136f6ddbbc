"""When a resumed run goes on exactly: what the cases of all rules rest on."""

from typing import Any

import pytest

from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import judge
from ckptcheck.state.training_state import Parameter
from ckptcheck.trace.items import Item
from tests.comparison.written import entry, number, optimizer, state_of

EQUAL = TraceDiff((4,), Compared(steps=1, parameters=1), (), drawn=frozenset({"torch"}))
APART = TraceDiff((4,), Compared(), (Difference(4, Item("param", "w"), None, None),))


def load(left: dict[str, Any], right: dict[str, Any]) -> Any:
    return compare_states(state_of(**left), state_of(**right))


def moment(value: int) -> Any:
    return state_of(optimizer([["a"]], {"a": {"m": entry(value)}}))


COURSES = [
    ("every step is equal", {"trajectory": EQUAL}, True),
    ("a weight differs", {"trajectory": APART}, False),
    ("nothing was compared", {}, False),
    ("the run raised", {"trajectory": EQUAL, "raised": "ValueError: no"}, False),
    ("a step is missing", {"trajectory": TraceDiff((4,), Compared(), (), left_only=(5,))}, False),
    ("a step is too much", {"trajectory": TraceDiff((4,), Compared(), (), right_only=(5,))}, False),
]


@pytest.mark.parametrize(("values", "exactly"), [one[1:] for one in COURSES], ids=[one[0] for one in COURSES])
def test_a_run_goes_on_exactly_where(values: dict[str, Any], exactly: bool) -> None:
    assert Case("resumed@3", 3, **values).goes_on_exactly is exactly


BROKEN = [
    ("a weight", load({"parameters": {"a": 1}}, {"parameters": {"a": 2}}), True),
    ("a buffer", load({"buffers": {"mean": entry(1)}}, {"buffers": {"mean": entry(2)}}), True),
    ("a moment", compare_states(moment(1), moment(2)), True),
    ("a generator that is drawn from", load({"rng": {"torch": entry(1)}}, {"rng": {"torch": entry(2)}}), True),
    ("a generator that is idle", load({"rng": {"numpy": entry(1)}}, {"rng": {"numpy": entry(2)}}), False),
    ("a log's counter", load({"sections": {"extra": {"x": number(1)}}}, {"sections": {"extra": {"x": number(2)}}}),
     False),
]  # fmt: skip


@pytest.mark.parametrize(("at_load", "breaks"), [one[1:] for one in BROKEN], ids=[one[0] for one in BROKEN])
def test_behind_noise_what_a_load_breaks_for_good_is_no_exact_course(at_load: Any, breaks: bool) -> None:
    hidden = Case("resumed@3", 3, load=at_load, trajectory=EQUAL, whole=False)
    assert hidden.breaks_at_load is breaks
    assert hidden.goes_on_exactly is not breaks
    assert Case("resumed@3", 3, load=at_load, trajectory=EQUAL).goes_on_exactly, "all that follows was judged"


REACHES = [
    ("raised before anything differed", {"raised": "ValueError"}, "rng", True),
    ("nothing differs and nothing raised", {"trajectory": EQUAL}, "rng", False),
    ("nothing is known", {}, "rng", False),
    ("a later difference", {"trajectory": APART}, "grad", True),
    ("a difference at the stage itself", {"trajectory": APART}, "param", True),
    ("an earlier difference", {"trajectory": APART}, "schedule", False),
    ("an earlier difference, and raised after it", {"trajectory": APART, "raised": "ValueError"}, "schedule", False),
]


@pytest.mark.parametrize(("values", "stage", "reaches"), [one[1:] for one in REACHES], ids=[one[0] for one in REACHES])
def test_a_run_is_as_far_as_a_stage_before_it_differs(values: dict[str, Any], stage: str, reaches: bool) -> None:
    assert Case("resumed@3", 3, **values).reaches(stage) is reaches


def test_an_entry_of_another_shape_is_told_with_both_shapes() -> None:
    sides = [{"parameters": {"a": Parameter("a", entry(1, size)), "b": 2}} for size in (2, 3)]
    (found,) = [one for one in judge(Case("resumed@3", 3, load=load(*sides), trajectory=APART)).findings
                if one.code == "CK601"]  # fmt: skip
    assert "; a was float32[2] and is float32[3]" in found.message

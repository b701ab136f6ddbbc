"""Which other step's state a resumed run has loaded, told by the content that the whole run had after its steps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.rules.runs.case import Case
from ckptcheck.state.training_state import Parameter
from ckptcheck.trace.items import Item
from ckptcheck.verdict.cases import loaded_step
from tests.comparison.written import entry, state_of, steps, tensor, write

A, B = Item("param", "a"), Item("param", "b")
APART = TraceDiff((4,), Compared(), (Difference(4, A, None, None),))
LEFT = {"a": 30, "b": 70}


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Callable[..., Case]]:
    """A case resumed after step 3, whose load brought this; a was 1, 2, 3, 4 and b 5, 5, 6, 7 after steps 1 to 4."""
    trace = write(
        tmp_path / "one.trace",
        steps(*({A: tensor(a), B: tensor(b)} for a, b in ((1, 5), (2, 5), (3, 6), (4, 7)))),
    )

    def make(right: dict[str, Any], left: dict[str, Any] | None = None, **values: Any) -> Case:
        load = compare_states(state_of(parameters=left or LEFT), state_of(parameters=right))
        return Case("resumed@3", 3, **{"load": load, "trajectory": APART, "origins": Origins(trace), **values})

    yield make
    trace.close()


@pytest.mark.parametrize(("right", "step"), [
    ({"a": 2, "b": 5}, 2), ({"a": 4, "b": 7}, 4), ({"a": 2, "b": 70}, 2), ({"a": 30, "b": 5}, 1),
    ({"a": 3, "b": 6}, None), ({"a": 3, "b": 70}, None), ({"a": 2, "b": 6}, None), ({"a": 9, "b": 5}, None),
    (LEFT, None),
])  # fmt: skip
def test_it_is_the_first_that_had_all_that_differs_and_never_the_step_resumed_after(
    case: Callable[..., Case], right: dict[str, int], step: int | None
) -> None:
    assert loaded_step(case(right)) == step


def test_weights_that_no_load_has_moved_are_of_no_step(case: Callable[..., Case]) -> None:
    right = {"a": 2, "b": 5}
    assert loaded_step(case(right, built=state_of(parameters=right))) is None
    assert loaded_step(case(right, built=state_of(parameters={"a": 2, "b": 9}))) == 2


def test_a_single_element_or_what_is_not_measured_tells_no_step(case: Callable[..., Case]) -> None:
    one, other = ({"a": Parameter("a", entry(value, 1), requires_grad=True)} for value in (30, 2))
    assert loaded_step(case(other, one)) is None
    right = {"a": 2, "b": 5}
    for lacking in ("load", "trajectory", "origins"):
        assert loaded_step(case(right, **{lacking: None})) is None

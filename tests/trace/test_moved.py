"""What moved while it should have rested is left out of a trace, and that is no difference to one that has it."""

import pytest

from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.traces import compare_traces
from ckptcheck.state.training_state import Group, Optimizer, Parameter, TrainingState
from ckptcheck.trace.items import Item
from ckptcheck.trace.moved import moved_items, with_the_moved
from tests.comparison.written import entry, groups, steps, tensor, write

WEIGHT, STATE = Item("param", "w"), Item("state", "w", "exp_avg", 0)
WHOLE = {WEIGHT: tensor(1), STATE: tensor(2), Item("param", "v"): tensor(3), **groups([["w", "v"]])}


@pytest.mark.parametrize("item", [WEIGHT, STATE])
@pytest.mark.parametrize("told", [True, False])
def test_a_sample_that_one_side_left_out_as_moved_is_no_difference(tmp_path, item, told):
    less = {one: sample for one, sample in WHOLE.items() if one != item}
    last = {**WHOLE, Item("param", "v"): tensor("other")}  # and a real one is still seen
    header = {"moved": [list(item)]} if told else {}
    pair = (
        write(tmp_path / "left", steps(WHOLE, WHOLE, WHOLE), driver="script"),
        write(tmp_path / "right", steps(less, WHOLE, last), driver="script", **header),
    )
    assert moved_items(pair[1]) == (frozenset({item}) if told else frozenset())
    for left, right in (pair, pair[::-1]):
        found = [(one.step, one.item) for one in compare_traces(left, right).differences]
        assert found == [*([] if told else [(1, item)]), (3, Item("param", "v"))]


def state(*, param=True, average=True, buffer=True, ema=True):
    return TrainingState(
        "made",
        3,
        parameters={name: Parameter(name, entry(name)) for name in ("v", *(["w"] if param else []))},
        buffers={"mean": entry("b")} if buffer else {},
        optimizers=(Optimizer("AdamW", (Group(("v", "w"), {}),), {"w": {"exp_avg": entry("m")}} if average else {}),),
        sections={"ema": {"w": entry("e")}} if ema else {},
    )


LACKS = {"param": WEIGHT, "average": STATE, "buffer": Item("buffer", "mean"), "ema": Item("ema", "w")}


@pytest.mark.parametrize("lacking", LACKS)
def test_a_state_that_lacks_what_moved_has_it_as_the_other_one(lacking):
    whole, less = state(), state(**{lacking: False})
    filled = with_the_moved(less, whole, frozenset({LACKS[lacking]}))
    assert compare_states(filled, whole).entries == ()
    assert compare_states(less, whole).entries != () or lacking == "ema"
    assert with_the_moved(less, whole, frozenset()) is less


def test_what_moved_and_is_there_is_held_against_the_other_side():
    other = state()
    changed = TrainingState("made", 3, {**other.parameters, "w": Parameter("w", entry("changed"))}, other.buffers,
                            other.optimizers, other.sections)  # fmt: skip
    assert with_the_moved(changed, other, frozenset({WEIGHT})).parameters["w"].entry == entry("changed")

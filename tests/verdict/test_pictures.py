"""Stages, gradient presence and membership where runs are not alike: traces and states made by hand."""

from pathlib import Path

import pytest

from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.rules.runs.case import Case
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState
from ckptcheck.trace.file import Trace, TraceWriter
from ckptcheck.trace.items import NONE, NONZERO, STEP, ZERO, Item, Sample
from ckptcheck.verbs import diff
from ckptcheck.verdict import presence as room
from ckptcheck.verdict.membership import membership
from ckptcheck.verdict.presence import presence
from ckptcheck.verdict.stage_strip import Sight, stage_strip

SAMPLES = Path(__file__).parents[2] / "fixtures" / "checkpoints" / "01_torch_save"
SPEC = TensorSpec("float32", (2,))


@pytest.fixture
def trace(tmp_path):
    """Write a trace of these samples by step, and read it."""
    opened = []

    def made(name, steps):
        writer = TraceWriter(tmp_path / f"{name}.trace", {"digest": "xxh3_128"})
        for step, samples in steps.items():
            writer.write(step, STEP, samples)
        writer.close(clean=True)
        opened.append(Trace(tmp_path / f"{name}.trace"))
        return opened[-1]

    yield made
    for one in opened:
        one.close()


def grad(name, number, part=0):
    return Item("grad", name, part=part), Sample(SPEC, None if number == NONE else bytes(16), number, 0.0)


def value(kind, name):
    return Item(kind, name), Sample(SPEC, bytes(16))


def case(*steps, load=None):
    return Case("resumed@0", 0, load=load, trajectory=TraceDiff(steps, Compared(), ()))


def test_of_several_updates_in_a_step_the_most_present_gradient_counts(trace):
    orders = {1: (NONE, NONZERO, ZERO), 2: (NONZERO, NONE, ZERO), 3: (NONE, ZERO, NONE), 4: (NONE, NONE, NONE)}
    left = trace("left", {step: [grad("w", number, part) for part, number in enumerate(parts)]
                          for step, parts in orders.items()})  # fmt: skip
    assert presence(Sight(case(), left, None))["rows"] == [
        {"parameters": ["w"], "left": "++0-", "right": None, "frozen": None, "contract": None}]  # fmt: skip


def test_a_side_that_lacks_a_step_or_a_parameter_says_nothing_of_it(trace):
    left = trace("left", {1: [grad("w", ZERO)], 2: [grad("w", ZERO)]})
    right = trace("right", {2: [grad("w", ZERO), grad("v", NONE)], 3: [grad("w", NONZERO)]})
    part = presence(Sight(case(), left, right, contracts={"*": "hold", "v": "removed"}))
    assert part["steps"] == [1, 2, 3]
    assert [(row["parameters"], row["left"], row["right"], row["contract"]) for row in part["rows"]] == [
        (["w"], "00 ", " 0+", "hold"), (["v"], "   ", " - ", "removed")]  # fmt: skip


def test_very_many_steps_are_told_one_in_some(trace, monkeypatch):
    monkeypatch.setattr(room, "MAX_CELLS", 6)
    left = trace("left", {step: [grad("w", NONE), grad("v", ZERO)] for step in range(1, 8)})
    part = presence(Sight(case(), left, None))
    assert (part["every"], part["steps"], [row["left"] for row in part["rows"]]) == (3, [1, 4, 7], ["---", "000"])


def test_without_gradients_there_is_nothing_to_tell(trace):
    assert presence(Sight(case(), trace("left", {1: [value("param", "w")]}), None)) is None


def test_what_one_side_alone_has_was_not_compared(trace):
    left = trace("left", {1: [value("param", "w"), value("buffer", "mean"), value("buffer", "var")]})
    right = trace("right", {1: [value("param", "w"), value("buffer", "mean"), value("ema", "w")]})
    stages = {one["stage"]: one["compared"] for one in stage_strip(Sight(case(1), left, right))["stages"]}
    assert (stages["param"], stages["buffers"], stages["ema"]) == (1, 1, 0)


def test_a_run_that_came_to_no_step_has_no_step_to_show(trace):
    raised = Case("resumed@0", 0, raised="ValueError", raised_step=1)
    part = stage_strip(Sight(raised, trace("left", {1: [value("param", "w")]}), None, rank=3))
    assert (part["run"], part["load"], part["shown"], part["raised_step"]) == ("resumed@0, rank 3", None, None, 1)
    assert {one["compared"] for one in part["stages"]} == {0}


def state(*groups):
    return TrainingState("made by hand", 0, {}, optimizers=(Optimizer("SGD", tuple(Group(one) for one in groups)),))


@pytest.mark.parametrize(("right", "moved"), [
    ((("a", "b"), ("c",)), 0), ((("c",), ("a", "b")), 0), ((("b", "a"), ("c",)), 0), ((("a",), ("c", "b")), 1),
    ((("a", "b"),), 1), ((("a", "b", "d"), ("c",)), 1),
])  # fmt: skip
def test_members_count_as_moved_by_the_group_that_answers_to_theirs(right, moved):
    load = compare_states(state(("a", "b"), ("c",)), state(*right))
    rows = {one["section"]: one for one in stage_strip(Sight(case(load=load), None, None))["load"]}
    assert rows["groups"]["differing"] == moved


def test_what_is_frozen_or_tied_on_one_side_alone_differs_at_the_load():
    def one(name, trained, *aliases):
        return Parameter(name, Entry(SPEC, None), aliases, trained)

    left = TrainingState("left", 0, {"a": one("a", False), "b": one("b", True, "c")})
    right = TrainingState("right", 0, {"a": one("a", True), "b": one("b", False)})
    part = stage_strip(Sight(case(load=compare_states(left, right)), None, None))
    rows = {each["section"]: (each["compared"], each["differing"]) for each in part["load"]}
    assert rows == {"param": (2, 0), "frozen": (2, 2), "ties": (1, 1)}


@pytest.mark.parametrize(("sample", "told"), [("zip_full.pt", [[6]]), ("zip_sgd_noname.pt", [])])
def test_groups_of_two_files_stand_side_by_side_where_both_name_their_members(sample, told):
    rows = diff(SAMPLES / sample, SAMPLES / sample).parts["membership"]
    assert [[group["size"] for group in one["left"]] for one in rows] == told


def test_distances_in_ulp_are_summed_by_section_and_state_key():
    folder = SAMPLES.parent / "04_hf_trainer"
    result = diff(folder / "checkpoint-2", folder / "checkpoint-4")
    told = {(one["section"], one["key"]): (one["tensors"], sum(one["counts"])) for one in result.parts["ulp"]}
    wanted: dict[tuple[str, str | None], list[int]] = {}
    for row in result.parts["differences"]:
        if row["max_ulp"] is not None:
            key = row["key"] if row["section"] == "optimizer" else None
            wanted.setdefault((row["section"], key), []).append(row["differing"])
    assert told == {name: (len(counts), sum(counts)) for name, counts in wanted.items()}
    assert ("optimizer", "exp_avg") in told and ("model", None) in told


def test_members_are_named_where_their_order_differs_alone():
    (part,) = membership(state(("a", "b"), ("c",)), state(("c",), ("b", "a")))
    assert (part["same_members"], part["same_order"], part["of"]) == (True, False, [1, 0])
    assert [one["members"] for one in part["right"]] == [["c"], ["b", "a"]]

"""How far a resumed script is from the run that it continues: exact numbers, a tolerance, and reasons for the rest."""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.comparison.tolerance import Tolerance
from ckptcheck.experiment.commands import second_pass
from ckptcheck.experiment.commands.second_pass import Measure
from ckptcheck.finding import Verdict
from ckptcheck.reports.page import Page
from ckptcheck.reports.text import render
from ckptcheck.trace.items import Item
from ckptcheck.verdict.asking import Policy, Question
from ckptcheck.verdict.scripts.measuring import apart, left_open, rows_of, why_open, with_measure
from ckptcheck.verdict.summary import Summary
from tests.verdict.scripts.test_cases import case_for

NUMBERS = ("max_abs", "rel_l2", "max_ulp", "differing")
STATES = [("bias", "momentum_buffer"), ("weight", "momentum_buffer")]
SCRIPT = Path(__file__).parent / "forgetting.py"


@pytest.fixture
def held(monkeypatch, tmp_path):
    """The parameters after each step, of the whole run and of the resumed one, made here and not recorded."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(tmp_path), *map(str, arguments)])
        return runpy.run_path(str(SCRIPT))["held"]

    with torch.random.fork_rng():
        return run(), run(tmp_path / "2.pt")


def test_the_exact_difference_of_the_load_and_of_every_step_is_measured(held):
    run = f"{sys.executable} {SCRIPT} {{dir}}"
    result = verbs.verify(run=run, resume=f"{run} {{ckpt}}", resume_at=[2])
    assert result.verdict is Verdict.FAIL
    rows = [one for one in result.parts["trajectory"] if one["section"] == "param"]
    assert [(one["step"], one["stage"], one["parameter"]) for one in rows] == [
        (2, "load", "bias"), *[(step, "param", name) for step in (3, 4, 5) for name in ("bias", "weight")],
    ]  # fmt: skip
    assert rows[0]["max_abs"] == pytest.approx(0.25, abs=1e-7)
    assert (rows[0]["differing"], rows[0]["numel"]) == (2, 2)
    for row in rows[1:]:
        left, right = (one[row["step"]][row["parameter"]].double() for one in held)
        assert row["max_abs"] == (right - left).abs().max().item()
        assert row["rel_l2"] == pytest.approx(((right - left).norm() / left.norm()).item(), rel=1e-9)
        assert row["differing"] == int((right != left).sum())
        assert "reason" not in row
    assert {one["step"] for one in result.parts["magnitudes"]} == {2, 3}
    (run,) = result.parts["divergence"]
    assert (run["run"], run["step"], run["steps"], run["left_out"]) == ("resumed", 2, [3, 4, 5], None)
    columns = {one["parameter"]: one for one in run["tensors"] if one["section"] == "param"}
    for row in rows[1:]:
        column = columns[row["parameter"]]
        assert [column[name][row["step"] - 3] for name in NUMBERS] == [row[name] for name in NUMBERS]
    assert columns["bias"]["load"] == {name: rows[0][name] for name in NUMBERS}
    assert columns["weight"]["load"] is None
    assert [(one["parameter"], one["key"]) for one in run["tensors"] if one["section"] == "state"] == STATES
    assert not any(one["not_measured"] for one in run["tensors"] if one["section"] == "param")
    assert [one["name"] for one in result.parts["runs"]][-2:] == ["reference-again", "resumed-again"]
    assert (result.environment["digest"], result.environment["threads"], result.environment["offline"]) == (
        "xxh3_128", result.environment["flags"]["num_threads"], True,
    )  # fmt: skip
    text = render(result, Page(width=80))
    assert [line.split() for line in text.splitlines() if line.startswith("Drift")] == [
        ["Drift", "rel", "L2", "after", "step", "3", "4", "5"]
    ]
    assert "2 more to measure" in text
    assert max(map(len, text.splitlines())) <= 80


def measured(case, within=()):
    values = {(one.step, one.item): TensorDifference(1, 1) for one in case.trajectory.differences}
    return Measure(values, set(within), frozenset(case.trajectory.steps))


def test_with_a_tolerance_what_is_within_it_is_no_difference(trained):
    policy = Policy(rtol=1.0)
    case = case_for(trained, "rng", policy=policy)
    numeric = {(one.step, one.item) for one in case.trajectory.differences if one.item.kind != "rng"}
    kept = with_measure(case, measured(case, numeric), policy)
    assert case.first is not None
    assert {one.item.kind for one in kept.trajectory.differences} <= {"rng", "inputs"}
    assert with_measure(case, measured(case), policy).trajectory.differences == case.trajectory.differences
    exact = with_measure(case, measured(case, numeric), Policy())
    assert exact.trajectory == case.trajectory, "nobody asked for a tolerance"
    assert exact.measured.keys() == {(one.step, one.item) for one in case.trajectory.differences}


def test_steps_that_were_not_laid_out_are_left_open_where_a_tolerance_was_asked_for(trained):
    policy = Policy(rtol=1.0)
    case = case_for(trained, "optimizer", policy=policy)
    few = replace_steps(measured(case), 7, 12)
    assert left_open(case, few, policy) == frozenset({8, 9, 10, 11})
    assert left_open(case, few, Policy()) == frozenset()
    numeric = [one.step for one in with_measure(case, few, policy).trajectory.differences if one.item.kind == "param"]
    assert set(numeric) == {7, 12}
    assert "4 steps from step 8 on" in why_open(frozenset({8, 9, 10, 11}))


def replace_steps(measure, *steps):
    return Measure(measure.measured, measure.within, frozenset(steps))


def test_what_has_no_numbers_says_why(trained):
    case = case_for(trained, "rng")
    weight = Item("param", "0.weight")
    measure = Measure(steps=frozenset({7}), reasons={(7, weight): second_pass.UNREPEATED})
    rows = rows_of(case, measure)
    found = {(one["step"], one["section"], one["parameter"]): one["reason"] for one in rows}
    assert found[6, "rng", None] == second_pass.GENERATOR
    assert found[7, "param", "0.weight"] == second_pass.UNREPEATED
    assert found[7, "param", "0.bias"] == second_pass.UNSEEN
    assert found[8, "param", "0.weight"] == second_pass.TOO_MUCH
    quick = {one["reason"] for one in rows_of(case, None) if one["section"] == "param"}
    assert quick == {"with --quick nothing is run once more to measure it"}


def test_what_is_laid_out_is_bounded_and_spread_evenly(trained, monkeypatch):
    differing = apart(0, case_for(trained, "optimizer"), trained["reference"])
    room = 1 << 40
    assert second_pass._affordable([differing], room) == frozenset(range(7, 13))
    monkeypatch.setattr(second_pass, "ALWAYS_BYTES", 0)
    monkeypatch.setattr(second_pass, "MODEL_SIZES", 0)
    assert second_pass._affordable([differing], room) == frozenset({7}), "the first step is laid out always"
    assert second_pass._affordable([differing], 16) is None
    step = sum(
        one.left.spec.nbytes for one in differing.trajectory.differences
        if one.step == 8 and one.left is not None and one.left.spec is not None
    )  # fmt: skip
    monkeypatch.setattr(second_pass, "ALWAYS_BYTES", 5 * step)
    found = second_pass._affordable([differing], room)
    assert {7, 12} < found < frozenset(range(7, 13)), "the first and the last, and some between"


def test_nothing_is_run_once_more_where_there_is_nothing_to_measure(trained):
    differing = apart(0, case_for(trained, "clean"), trained["reference"])
    experiment = None  # it is not asked for anything
    measures, runs = second_pass.measured_ranks(experiment, [differing], tolerance=Tolerance())
    assert (measures, runs) == ([Measure()], [])


def test_a_run_whose_load_was_held_against_nothing_never_passes(trained):
    case = case_for(trained, "clean")
    for load, verdict in ((case.load, Verdict.PASS), (None, Verdict.INCONCLUSIVE)):
        made = Summary([replace(case, load=load)], [], [], Question(), [])
        assert made.result({}, {}).verdict is verdict

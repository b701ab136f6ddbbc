"""From a comparison to a result: verdicts, rows and what the report is told; first on nouns made by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from ckptcheck.comparison.checkpoint_diff import (
    CheckpointDiff,
    DiffOptions,
    Kind,
    OptimizerPair,
    Regrouped,
    Row,
    SectionSummary,
)
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.errors import UsageError
from ckptcheck.finding import Compared, Finding, Place, Severity, Verdict
from ckptcheck.reports.json import document
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry
from ckptcheck.verdict.difference_rows import difference_row
from ckptcheck.verdict.inspection import MAX_TEXT
from ckptcheck.verdict.two_checkpoints import Gate, Judged, check_question, result_of
from tests.reports.checkpoint_results import DIFFERENT
from tests.reports.contract import breaches
from tests.verdict.made import CHECKPOINT, entry, floats, plain, tensor

SAME = CheckpointDiff(CHECKPOINT, CHECKPOINT, (), (SectionSummary("model", 3, 1, 40),), paired_by=("name",),
                      compared=Compared(parameters=2, bytes=40))  # fmt: skip
MOVED = Row("progress", None, "epoch", Kind.CHANGED, plain(3), plain(4))
APART = replace(SAME, rows=(MOVED,))
DCP = replace(CHECKPOINT, raw=replace(CHECKPOINT.raw, path=Path("run/dcp"), container="dcp"))
NONE = replace(SAME, summaries=(SectionSummary("model"),))
FAILING = Judged((Finding("CK102", "checksum-mismatch", Severity.ERROR, "bad", Place()),))
WARNING = Judged((Finding("CK106", "stale-bytes", Severity.WARNING, "stale", Place()),))


def result(diff, options=None, gate=None, judged=None):
    return result_of(diff, options or DiffOptions(), gate or Gate(), judged or Judged())


@pytest.mark.parametrize(("diff", "verdict"), [
    (SAME, Verdict.PASS), (APART, Verdict.FAIL), (NONE, Verdict.INCONCLUSIVE),
    (replace(SAME, summaries=()), Verdict.INCONCLUSIVE),
    (replace(NONE, summaries=(SectionSummary("rng", 0, 1),)), Verdict.PASS),
    (replace(SAME, regrouped=(Regrouped("w", 0, 0, 1),)), Verdict.FAIL),
    (replace(SAME, unread=1), Verdict.INCONCLUSIVE), (replace(APART, unread=1), Verdict.FAIL),
    (replace(NONE, rows=(replace(MOVED, kind=Kind.ADDED, left=None),)), Verdict.FAIL),
])  # fmt: skip
def test_any_difference_of_content_fails_and_nothing_compared_is_no_pass(diff, verdict):
    assert result(diff).verdict is verdict


@pytest.mark.parametrize(("diff", "judged", "fail_on", "verdict"), [
    (APART, Judged(), "error", Verdict.PASS), (SAME, FAILING, "error", Verdict.FAIL),
    (SAME, WARNING, "error", Verdict.PASS), (SAME, WARNING, "warning", Verdict.FAIL),
    (SAME, FAILING, "never", Verdict.PASS), (NONE, Judged(), "error", Verdict.INCONCLUSIVE),
])  # fmt: skip
def test_where_findings_gate_content_may_differ(diff, judged, fail_on, verdict):
    assert result(diff, gate=Gate("findings", fail_on=fail_on), judged=judged).verdict is verdict


@pytest.mark.parametrize(("diff", "same", "other_container"), [
    (SAME, True, False), (replace(SAME, right=DCP), True, True), (replace(APART, right=DCP), False, False),
    (replace(SAME, right=DCP, summaries=(SectionSummary("model", 1, tolerated=1),)), False, False),
    (replace(NONE, right=DCP), False, False), (replace(SAME, right=DCP, unread=1), False, False),
])  # fmt: skip
def test_identical_content_is_told_apart_from_equal_within_a_tolerance(diff, same, other_container):
    parts = result(diff).parts
    assert parts["identical_content"] is same
    assert parts["identical_content_different_container"] is other_container


DIFFERENCE = TensorDifference(4, differing=1, first_at=(0, 1), max_abs=0.5, max_abs_at=(0, 1), rel_l2=None, max_ulp=3,
                              median_ulp=3, sign_flips=1)  # fmt: skip
WHOLE = entry(tensor(floats(*range(4)), (2, 2)))
ROWS = (
    Row("optimizer", "fc.weight", "exp_avg", Kind.CHANGED, WHOLE, WHOLE, 0, 1, DIFFERENCE, beyond=1),
    Row("model", "a", None, Kind.MOVED, WHOLE, WHOLE, other="b"),
    Row("rng", None, "torch", Kind.ADDED, None, WHOLE),
    Row("model", "w", None, Kind.SHAPE, WHOLE, Entry(TensorSpec("float32", (3,)), None)),
    Row("optimizer", None, "lr", Kind.CHANGED, plain(float("nan")), plain(0.5), 0, 0),
)


def test_a_row_has_every_key_and_null_where_it_does_not_apply():
    rows = [difference_row(row) for row in ROWS]
    assert all(set(row) == set(DIFFERENT.parts["differences"][0]) for row in rows)
    assert rows[0] == dict.fromkeys(rows[0]) | {
        "section": "optimizer", "parameter": "fc.weight", "key": "exp_avg", "kind": "changed", "optimizer": 0,
        "group": 1, "beyond": 1, "differing": 1, "numel": 4, "first_at": [0, 1], "max_abs": 0.5, "max_abs_at": [0, 1],
        "max_ulp": 3, "median_ulp": 3, "sign_flips": 1, "nan": 0, "inf": 0, "signed_zeros": 0, "nan_payloads": 0,
        "left_dtype": "float32", "right_dtype": "float32", "left_shape": [2, 2], "right_shape": [2, 2],
    }  # fmt: skip
    assert (rows[1]["kind"], rows[1]["other"]) == ("moved", "b")
    assert (rows[2]["left_dtype"], rows[2]["right_dtype"]) == (None, "float32")
    assert (rows[3]["left_shape"], rows[3]["right_shape"]) == ([2, 2], [3])


def test_the_json_keeps_the_contract():
    diff = replace(SAME, rows=ROWS, regrouped=(Regrouped("w", 0, None, 1),), not_compared=("x",), notes=("y",))
    told = document(result(diff))
    assert breaches(told) == []
    assert told["differences"][4]["left"] == "nan"
    assert told["groups"] == [{"parameter": "w", "optimizer": 0, "left_group": None, "right_group": 1}]


@pytest.mark.parametrize(("value", "told"), [
    ("nan:7ff8000000000000", "nan"), ("inf", "inf"), ("-inf", "-inf"), ("None", None), ("'None'", "'None'"),
    ("'nan:7ff8'", "'nan:7ff8'"), (float("nan"), "nan"), (float("-inf"), "-inf"), (True, True),
])  # fmt: skip
def test_values_that_json_has_not_are_told_as_the_contract_says(value, told):
    rows = (replace(MOVED, left=plain(value), right=plain(1)), replace(MOVED, left=plain(1), right=plain(value)))
    one, other = document(result(replace(SAME, rows=rows)))["differences"]
    assert (one["left"], one["right"]) == (told, 1)
    assert (other["left"], other["right"]) == (1, told)


def test_the_optimizers_of_both_sides_are_told_with_their_labels():
    pairs = (OptimizerPair(0, 0, 1, "G", "gen", "name"), OptimizerPair(1, None, 0, "", "D"))
    row = Row("optimizer", None, "lr", Kind.ADDED, None, plain(0.1), 1, 0)
    told = document(result(replace(SAME, rows=(row,), optimizers=pairs)))
    assert told["optimizers"] == [
        {"optimizer": 0, "left": 0, "right": 1, "left_label": "G", "right_label": "gen", "paired_by": "name"},
        {"optimizer": 1, "left": None, "right": 0, "left_label": None, "right_label": "D", "paired_by": None},
    ]
    assert told["differences"][0]["label"] == "D"
    assert breaches(told) == []


def test_of_a_tensor_of_one_element_both_numbers_are_told():
    sides = (entry(tensor(floats(value), ())) for value in (5.0, 10.0))
    row = difference_row(Row("optimizer", "w", "step", Kind.CHANGED, *sides, 0, 0, DIFFERENCE))
    assert (row["left"], row["right"]) == (5.0, 10.0)


def test_of_long_texts_the_part_that_differs_is_shown():
    left, right = "x" * 1000 + "A" + "y" * 1000, "x" * 1000 + "B" + "y" * 1000
    row = difference_row(replace(MOVED, left=plain(left), right=plain(right)))
    assert "A" in row["left"] and "B" in row["right"]
    assert row["left"].startswith("...x") and row["left"].endswith("y...")
    assert len(row["left"]) == MAX_TEXT + 6


def test_a_long_text_on_one_side_is_cut():
    row = difference_row(replace(MOVED, left=plain("x" * 1000), right=None))
    assert (row["left"], row["right"]) == ("x" * MAX_TEXT + "...", None)


def test_the_tolerance_is_echoed():
    options = DiffOptions(rtol=0.1, tolerances={"state:bfloat16": (0.01, 1e-6)})
    assert result(SAME, options).parts["tolerance"] == {
        "rtol": 0.1, "atol": 0.0, "applies_to": ["param", "buffer", "grad", "state", "ema"],
        "roles": {"state:bfloat16": {"rtol": 0.01, "atol": 1e-6}},
    }  # fmt: skip
    assert result(SAME, DiffOptions(tolerances={"hyper": (0.1, 0.0)})).parts["tolerance"]["applies_to"] == []
    assert result(SAME).parts["tolerance"] is None


@pytest.mark.parametrize(("options", "gate", "said"), [
    (DiffOptions(), Gate("all"), "--gate 'all' is unknown"),
    (DiffOptions(rtol=-1.0), Gate(), "--rtol and --atol"),
    (DiffOptions(tolerances={"state": (float("nan"), 0.0)}), Gate(), "--tolerance state"),
    (DiffOptions(tolerances={"exp_avg:bfloat16": (0.1, 0.0)}), Gate(), "there is no such role"),
    (DiffOptions(tolerances={"rng": (0.1, 0.0)}), Gate(), "there is no such role"),
])  # fmt: skip
def test_a_wrong_question_is_refused(options, gate, said):
    with pytest.raises(UsageError, match=said):
        check_question(options, gate)

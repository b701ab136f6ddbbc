"""A probe held against an earlier one, and what an earlier one must be."""

import json

import pytest

from ckptcheck.errors import UsageError
from ckptcheck.finding import Verdict
from ckptcheck.reports.json import document

KEYS = {
    "optimizer", "implementation", "scenario", "hyperparameters", "history", "grad", "entered_step", "param_changed",
    "state_changed", "step_advanced", "before", "after", "versions",
}  # fmt: skip


def test_the_same_contract_passes_and_another_one_fails(probe, tmp_path):
    told = document(probe("SGD"))
    assert all(set(row) >= KEYS for row in told["contract"])
    assert {row["grad"] for row in told["contract"]} == {"none", "zero", "nonzero"}
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps(told))
    assert probe("SGD", baseline=path).verdict is Verdict.PASS
    for row in told["contract"]:
        if (row["variant"], row["scenario"], row["grad"]) == ("momentum", "history", "zero"):
            row["state_changed"] = []
        row["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(told))
    result = probe("SGD", baseline=path)
    assert result.verdict is Verdict.FAIL
    assert {one.code for one in result.findings} == {"CK705"}
    assert [one.evidence["implementation"] for one in result.findings] == ["for", "foreach", "fused"]
    assert "(cpu, torch 1.0 -> cpu, torch 2." in result.findings[0].message


def test_a_baseline_of_another_optimizer_is_no_pass(probe, tmp_path):
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps(document(probe("Rprop"))))
    result = probe("SGD", baseline=path)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "CK705" in {one.code for one in result.not_judged}


WRONG = {
    "no file": (None, "cannot be read"),
    "no json": ("{", "is no JSON"),
    "not utf-8": (b"\xff\xfe", "is no JSON"),
    "a list": ("[]", "is no result of schema 1"),
    "another command": ('{"schema": 1, "command": "diff"}', "is a result of 'diff' and holds no contract"),
    "a newer schema": ('{"schema": 2, "command": "probe", "contract": []}', "is a result of 'probe'"),
    "a row that is none": ('{"schema": 1, "command": "probe", "contract": [{"optimizer": "SGD"}]}', "holds a row"),
    "a row that is a number": ('{"schema": 1, "command": "probe", "contract": [3]}', "holds a row"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_baseline_that_is_none_is_refused_before_anything_is_probed(probe, tmp_path, name):
    content, words = WRONG[name]
    path = tmp_path / "earlier.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as refused:
        probe("Adam", baseline=path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_nothing_to_probe_is_refused(probe):
    with pytest.raises(UsageError, match="nothing to probe"):
        probe()

"""Numbers of both sides, judged from the bytes that are verified: whose they are, told once, and what was demanded."""

import json

import pytest
import torch

from ckptcheck import verbs
from ckptcheck.finding import Severity, Verdict
from tests.check_cases.following import A, B, _nan_on_both, _odd
from tests.check_cases.two import named, parameters, two


def _numbers(result):
    return [one for one in result.findings if one.code == "CK501"]


@pytest.mark.parametrize("turned", [False, True])
def test_the_place_of_a_number_is_the_file_that_holds_it(tmp_path, turned):
    left, right = two(_odd("exp_avg", float("nan")))(tmp_path)
    first, second = (right, left) if turned else (left, right)
    (found,) = _numbers(verbs.diff(first, second, gate="findings"))
    assert (found.where.path, found.where.parameter, found.where.key) == (str(right), B, "exp_avg")
    assert "also" not in found.message


def test_what_both_have_alike_is_told_once_of_the_right_one(tmp_path):
    left, right = two(_nan_on_both)(tmp_path)
    (found,) = _numbers(verbs.diff(left, right, gate="findings"))
    assert (found.where.path, found.where.parameter) == (str(right), A)
    assert found.message.endswith("; also in the left checkpoint")


def test_numbers_that_differ_are_told_of_each_side(tmp_path):
    def more_on_the_right(left, right):
        _nan_on_both(left, right)
        right["model"][A][1, 1] = float("nan")

    left, right = two(more_on_the_right)(tmp_path)
    found = _numbers(verbs.diff(left, right, gate="findings"))
    assert [(one.where.path, one.evidence["nan"]) for one in found] == [(str(left), 1), (str(right), 2)]


def test_content_gates_by_content_alone(tmp_path):
    assert _numbers(verbs.diff(*two(_nan_on_both)(tmp_path), gate="content")) == []


def test_select_and_ignore_choose_among_them(tmp_path):
    sides = two(_nan_on_both)(tmp_path)
    assert _numbers(verbs.diff(*sides, gate="findings", ignore=["CK501"])) == []
    assert {one.code for one in verbs.diff(*sides, gate="findings", select=["CK501"]).findings} == {"CK501"}


@pytest.mark.parametrize(("code", "verdict"), [("CK501", Verdict.PASS), ("CK5", Verdict.PASS), ("CK210", Verdict.FAIL),
                                               ("CK999", Verdict.FAIL)])  # fmt: skip
def test_a_code_that_two_checkpoints_are_never_asked_is_demanded_in_vain(tmp_path, code, verdict):
    result = verbs.diff(*two(groups=named)(tmp_path), gate="findings", require=[code])
    assert result.verdict is verdict
    assert [one.code for one in result.not_judged if one.code == code] == ([code] if verdict is Verdict.FAIL else [])


def test_a_release_is_named_as_one(tmp_path):
    def released(left, right):
        for key in ("optimizer", "step", "rng"):
            del right[key]

    result = verbs.diff(*two(released)(tmp_path), gate="findings")
    assert result.verdict is Verdict.PASS
    assert "the right checkpoint is judged as a release: it holds weights only" in json.dumps(result.parts["notes"])
    whole = verbs.diff(*two()(tmp_path), gate="findings")
    assert "release" not in json.dumps(whole.parts["notes"])


def test_sgd_without_moments_leaves_a_contract_of_gradients_unjudged(tmp_path):
    sides = two(optimizer=torch.optim.SGD, groups=named)(tmp_path)
    result = verbs.diff(*sides, gate="findings", freeze={A: "no-grad"}, require=["CK403"])
    assert result.verdict is Verdict.FAIL
    (said,) = [one.reason for one in result.not_judged if one.code == "CK403"]
    assert A in said and "no update counter and no moment" in said


def test_without_names_a_contract_of_gradients_is_not_judged(tmp_path):
    sides = two(optimizer=torch.optim.SGD, groups=parameters)(tmp_path)
    result = verbs.diff(*sides, gate="findings", freeze={A: "no-grad"})
    assert [one for one in result.findings if one.severity is Severity.ERROR] == []
    assert "CK403" in {one.code for one in result.not_judged}

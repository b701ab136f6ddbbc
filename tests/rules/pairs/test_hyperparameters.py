"""CK306 over two checkpoints."""

import pytest

from ckptcheck.finding import Severity
from tests.check_cases.pairs import COSINE, ONE_CYCLE
from tests.check_cases.two import half_and_half, two
from tests.rules.pairs.given import said


def _set(**values):
    def change(left, right):
        right["optimizer"]["param_groups"][0].update(values)

    return change


def _scheduled(**values):
    def change(left, right):
        right["scheduler"].update(values)

    return change


@pytest.mark.parametrize(("values", "severity"), [
    ({"weight_decay": 0.5}, Severity.WARNING), ({"betas": (0.8, 0.9)}, Severity.WARNING),
    ({"eps": 1e-5}, Severity.WARNING), ({"amsgrad": True}, Severity.WARNING), ({"maximize": True}, Severity.WARNING),
    ({"initial_lr": 0.5}, Severity.INFO), ({"lr": 0.5}, None),
    ({"foreach": True, "fused": True, "capturable": True, "differentiable": True}, None),
])  # fmt: skip
def test_what_changed_weighs_by_what_it_is(tmp_path, values, severity):
    findings, _ = said(two(_set(**values), **COSINE)(tmp_path), "CK306")
    assert [one.severity for one in findings] == ([severity] if severity else [])


def test_both_values_and_the_group_are_told(tmp_path):
    (found,), _ = said(two(_set(weight_decay=0.5), groups=half_and_half)(tmp_path), "CK306")
    assert (found.where.group, found.where.key) == (0, "weight_decay")
    assert (found.evidence["left"], found.evidence["right"], found.evidence["wins"]) == (0.1, 0.5, "right")


def test_several_changes_are_one_finding(tmp_path):
    (found,), _ = said(two(_set(weight_decay=0.5, eps=1e-3))(tmp_path), "CK306")
    assert len(found.evidence["changes"]) == 2


def test_a_schedule_that_moves_rate_and_momentum_changes_nothing(tmp_path):
    assert said(two(**ONE_CYCLE)(tmp_path), "CK306") == ([], [])
    assert said(two(**COSINE)(tmp_path), "CK306") == ([], [])


@pytest.mark.parametrize("values", [{"T_max": 1000}, {"base_lrs": [0.5]}, {"eta_min": 1e-5}])
def test_another_horizon_is_news_and_no_more(tmp_path, values):
    (found,), _ = said(two(_scheduled(**values), **COSINE)(tmp_path), "CK306")
    assert found.severity is Severity.INFO
    assert found.where.key.partition("[")[0] in values

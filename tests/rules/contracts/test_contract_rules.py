"""The rules over probes: each fires on what it is about, and is silent on what is legal."""

from dataclasses import replace

import pytest

from ckptcheck.finding import NotJudged, Severity
from ckptcheck.lab.contract import Agreement, Contracts, Keeping, Row, Way
from ckptcheck.rules.contracts.table import CONTRACT_RULES, WHY_NOT
from ckptcheck.rules.rule import judged

REST = Row(
    optimizer="Own", variant="", implementation="for", scenario="history", parameter="p",
    hyperparameters={"lr": 0.1}, history=5, grad="none", entered_step=False, param_changed=False, state_changed=(),
    step_advanced=False, before={"param": [1.0]}, after={"param": [1.0]}, versions={"torch": "2.13.0"},
)  # fmt: skip
MOVED = replace(REST, param_changed=True, state_changed=("exp_avg",))
SAME = Agreement("Own", "", "foreach", "zero", 6, True, 0, 0.0, {}, True, "", 0.5)
PRESENT = Way("present", "body.*", "hold", 20, False, 7, "body.weight", "its gradient is zero")


def _said(**found):
    rows = {name: tuple(value) for name, value in found.items()}
    findings, not_judged = judged(CONTRACT_RULES, Contracts(**rows), WHY_NOT)
    return [(one.code, one.severity) for one in findings], findings, not_judged


FIRES = {
    "value moves for none": ("CK701", Severity.ERROR, {"rows": [MOVED]}),
    "state alone moves for none": ("CK701", Severity.ERROR, {"rows": [replace(REST, state_changed=("step",))]}),
    "lbfgs, which is known": ("CK701", Severity.WARNING, {"rows": [replace(MOVED, optimizer="LBFGS")]}),
    "lbfgs in a target": ("CK701", Severity.WARNING, {"rows": [replace(MOVED, optimizer="optimizer 1 (LBFGS)")]}),
    "one that has its name in its own": ("CK701", Severity.ERROR, {"rows": [replace(MOVED, optimizer="own.py:LBFGS")]}),
    "frozen and without a gradient": ("CK702", Severity.ERROR, {"rows": [replace(MOVED, scenario="frozen-none")]}),
    "frozen under lbfgs": (
        "CK702", Severity.WARNING, {"rows": [replace(MOVED, scenario="frozen-none", optimizer="LBFGS")]},
    ),
    "a contract that is broken": ("CK702", Severity.ERROR, {"freezing": [PRESENT]}),
    "a gradient that arrives": ("CK403", Severity.ERROR, {"freezing": [replace(PRESENT, contract="no-grad")]}),
    "a reload that is another": (
        "CK703", Severity.WARNING, {"keeping": [Keeping("Own", "", False, ("t",), "the parameter differs")]},
    ),
    "another contract": ("CK704", Severity.WARNING, {"implementations": [replace(SAME, same_contract=False)]}),
    "far from the loop": (
        "CK704", Severity.WARNING, {"implementations": [replace(SAME, bitwise=False, max_ulp=9, max_abs=6e-4)]},
    ),
    "a difference that is no number": (
        "CK704", Severity.WARNING, {"implementations": [replace(SAME, bitwise=False, max_abs=float("nan"))]},
    ),
    "moves where it rested": ("CK705", Severity.ERROR, {"rows": [REST], "baseline": [MOVED]}),
    "another key moves": (
        "CK705", Severity.ERROR,
        {"rows": [replace(MOVED, grad="zero")], "baseline": [replace(MOVED, grad="zero", state_changed=("step",))]},
    ),
    "raises where it did not": (
        "CK705", Severity.ERROR,
        {"rows": [replace(REST, grad="zero")], "baseline": [replace(REST, grad="zero", raised="ValueError: no")]},
    ),
    "a step that raises": ("CK706", Severity.ERROR, {"rows": [replace(REST, raised="AttributeError: grad")]}),
}  # fmt: skip
SILENT = {
    "rests for none": {"rows": [REST]},
    "moves for zeros": {"rows": [replace(MOVED, grad="zero"), replace(MOVED, grad="nonzero")]},
    "an average that moves": {"rows": [replace(MOVED, scenario="frozen-average")]},
    "stale, zeroed, at learning rate 0": {
        "rows": [replace(MOVED, scenario=f"frozen-{one}", grad=grad)
                 for one, grad in (("stale", "nonzero"), ("zeroed", "zero"), ("lr-zero", "nonzero"))],
    },
    "a contract that is kept": {"freezing": [replace(PRESENT, keeps=True, broken_at=None)]},
    "another way that would not keep it": {"freezing": [replace(PRESENT, name="learning rate 0")]},
    "a reload that goes on": {"keeping": [Keeping("Own", "", True, ("cache",))]},
    "other bits by rounding": {"implementations": [replace(SAME, bitwise=False, max_ulp=240, max_abs=4e-4)]},
    "an implementation that is not there": {"implementations": [replace(SAME, same_contract=None, raised="no")]},
    "the same as before, elsewhere": {
        "rows": [replace(MOVED, grad="zero", device="cuda:0", after={"param": [2.0]}, versions={"torch": "3.0"})],
        "baseline": [replace(MOVED, grad="zero")],
    },
    "a case that is new": {"rows": [replace(REST, scenario="new"), REST], "baseline": [REST]},
}  # fmt: skip


@pytest.mark.parametrize("name", FIRES)
def test_a_rule_fires(name):
    code, severity, found = FIRES[name]
    assert _said(**found)[0] == [(code, severity)]


@pytest.mark.parametrize("name", SILENT)
def test_what_is_legal_is_silent(name):
    assert _said(**SILENT[name])[0] == []


def test_a_finding_comes_once_for_each_variant_and_not_for_each_implementation():
    rows = [replace(MOVED, implementation=one, variant=name) for name in ("", "decay") for one in ("for", "foreach")]
    _, findings, _ = _said(rows=rows)
    assert [one.message.split(" takes ")[0] for one in findings] == ["Own", "Own (decay)"]
    assert findings[0].evidence["implementation"] == "for"


def test_the_first_way_that_keeps_a_contract_is_the_fix():
    others = [
        Way(name, "body.*", "hold", 20, keeps) for name, keeps in (("one", False), ("two", True), ("three", True))
    ]
    _, (finding,), _ = _said(freezing=[PRESENT, *others])
    assert finding.fix == "freeze by: two"
    assert finding.evidence["would_keep"] == ["two", "three"]
    assert (finding.where.step, finding.where.parameter) == (7, "body.weight")
    _, (finding,), _ = _said(freezing=[PRESENT, others[0], replace(others[1], contract="no-update")])
    assert finding.fix == "no way of freezing that was tried keeps the contract"


def test_what_could_not_be_judged_is_said_with_the_reason():
    keeping = Keeping("Own", "", None, reason="TypeError: cannot")
    _, findings, not_judged = _said(keeping=[keeping], rows=[REST], baseline=[REST, replace(REST, scenario="gone")])
    assert not findings
    assert not_judged == [
        NotJudged("CK703", "a reload of Own cannot be judged: TypeError: cannot"),
        NotJudged("CK705", "1 of 2 cases of the baseline were not probed, such as Own [for], gone"),
    ]
    assert NotJudged("CK705", "no baseline was given") in _said(rows=[REST])[2]


def test_where_no_way_could_be_tried_to_the_end_the_reason_is_told():
    others = [Way(name, "body.*", "hold", 20, None, reason="ValueError: late") for name in ("one", "two")]
    _, (finding,), _ = _said(freezing=[PRESENT, *others])
    assert finding.fix == "no other way could be tried to the end: ValueError: late"
    _, (finding,), _ = _said(freezing=[PRESENT, replace(others[0], keeps=False), others[1]])
    assert finding.fix == "no way of freezing that was tried keeps the contract"

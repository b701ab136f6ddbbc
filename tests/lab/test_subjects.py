"""Optimizers of one's own: each broken convention is told, each legal one is silent; what is none is refused."""

from pathlib import Path

import pytest

from ckptcheck.errors import TargetError
from ckptcheck.finding import Severity, Verdict

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
OWN = f"{FIXTURES / 'optimizers.py'}:"
BROKEN = {
    "NoneAsZero": ({"CK701"}, Verdict.FAIL),
    "StepsFrozen": ({"CK702"}, Verdict.FAIL),
    "RaisesOnNone": ({"CK706"}, Verdict.FAIL),
    "KeepsOutside": ({"CK703"}, Verdict.PASS),
    "OtherWhenForeach": ({"CK701", "CK702", "CK704"}, Verdict.FAIL),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_convention_is_told_by_its_code(probe, name):
    codes, verdict = BROKEN[name]
    result = probe(OWN + name)
    assert ({one.code for one in result.findings}, result.verdict) == (codes, verdict)
    assert all(name in one.message for one in result.findings)


@pytest.mark.parametrize("name", ["Lion", "lion_with_decay"])
def test_one_that_keeps_the_conventions_is_silent(probe, name):
    result = probe(OWN + name)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert result.compared.steps > 20


def test_arguments_reach_the_constructor(probe):
    result = probe(OWN + "NeedsArguments", arguments={"lr": 0.5, "beta": 0.25})
    assert result.verdict is Verdict.PASS
    settings = [one["hyperparameters"] for one in result.parts["contract"] if one["scenario"] == "history"]
    assert [(one["lr"], one["beta"]) for one in settings] == [(0.5, 0.25)] * 3


def test_evidence_of_none_taken_for_zeros_shows_before_and_after(probe):
    (first, *_) = probe(OWN + "NoneAsZero").findings
    assert first.severity is Severity.ERROR
    before, after = first.evidence["before"], first.evidence["after"]
    assert before["param"] != after["param"]
    # its momentum decays by beta = 0.9
    assert after["momentum"] == pytest.approx([0.9 * one for one in before["momentum"]], rel=1e-6)


def test_lbfgs_is_known_and_warned_of(probe):
    result = probe("LBFGS")
    assert result.verdict is Verdict.PASS
    assert {(one.code, one.severity) for one in result.findings} == {
        ("CK701", Severity.WARNING), ("CK702", Severity.WARNING),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["torch.optim.SGD", "torch.optim:SGD", "SGD"])
def test_a_class_of_torch_has_several_names(probe, name):
    assert {one["optimizer"] for one in probe(name).parts["contract"]} == {"SGD"}


REFUSED = {
    "Adma": ("did you mean Adamax",),
    "SGDD": ("did you mean SGD",),
    OWN + "lion": ("did you mean Lion",),
    OWN + "Nothing": ("has no 'Nothing'", "NoneAsZero"),
    str(FIXTURES / "optimizers.py"): ("has no 'build'", ":Lion"),
    OWN + "NeedsArguments": ("needs the arguments lr, beta", "--arg lr=... --arg beta=..."),
    "collections:OrderedDict": ("is no optimizer", "has no step()"),
    "there_is_no_such_module:Lion": ("there is no module",),
    "nowhere.py:Lion": ("nowhere.py, which does not exist",),
    "math:pi": ("is a float",),
}


@pytest.mark.parametrize("name", REFUSED, ids=lambda name: name.rpartition("/")[2])
def test_what_is_no_optimizer_is_refused_in_one_line(probe, name):
    with pytest.raises(TargetError) as refused:
        probe(name)
    assert "\n" not in str(refused.value)
    for words in REFUSED[name]:
        assert words in str(refused.value)


def test_an_argument_that_it_does_not_take_is_refused_with_those_it_takes(probe):
    with pytest.raises(TargetError, match=r"takes no argument 'rate': --arg takes lr, beta, weight_decay"):
        probe(OWN + "Lion", arguments={"rate": 0.1})
    with pytest.raises(TargetError, match=r"cannot be made: ValueError: Invalid learning rate: -1"):
        probe("Adam", arguments={"lr": -1})


def test_one_that_wraps_another_is_asked_for_as_a_function(probe, tmp_path):
    path = tmp_path / "wrap.py"
    path.write_text(
        "import torch\nclass Ahead:\n    def __init__(self, params, base_optimizer): pass\n"
        "    def step(self): pass\n    def zero_grad(self): pass\n"
    )
    with pytest.raises(TargetError, match=r"wants another optimizer as base_optimizer: write a function of params"):
        probe(f"{path}:Ahead")


def test_a_class_that_makes_something_else_is_refused(probe, tmp_path):
    path = tmp_path / "odd.py"
    path.write_text("def make(params):\n    return list(params)\n")
    with pytest.raises(TargetError, match=r"makes a list, which is no optimizer"):
        probe(f"{path}:make")


def test_one_that_is_no_torch_optimizer_is_not_blamed_for_what_it_lacks(probe, tmp_path):
    path = tmp_path / "duck.py"
    path.write_text(
        "import torch\n"
        "class Duck:\n"
        "    def __init__(self, params, lr=0.1): self.param_groups = [{'params': list(params), 'lr': lr}]\n"
        "    def zero_grad(self, set_to_none=True):\n"
        "        for p in self.param_groups[0]['params']: p.grad = None\n"
        "    @torch.no_grad()\n"
        "    def step(self):\n"
        "        for p in self.param_groups[0]['params']:\n"
        "            if p.grad is not None: p -= self.param_groups[0]['lr'] * p.grad\n"
    )
    result = probe(f"{path}:Duck")
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    left_out = {one.reason.partition(":Duck has no scenario ")[2].partition(":")[0] for one in result.not_judged}
    assert {"frozen-lr-zero", "accumulation-over-a-resume"} <= left_out
    moved = {row["grad"]: row["param_changed"] for row in result.parts["contract"] if row["scenario"] == "history"}
    assert moved == {"none": False, "zero": False, "nonzero": True}


ODD = f"{Path(__file__).parent / 'odd_optimizers.py'}:"
TOLD = {
    "DecaysTheRested": ({"CK701"}, "many steps without one change its value"),
    "MakesStateAtOnce": ({"CK701"}, "a step without one, before any other, changes momentum"),
    "SyncsAll": ({"CK701"}, "many steps without one change its value"),
    "Leaves": ({"CK706"}, "SystemExit: 3"),
    "DividesByItsNorm": ({"CK501"}, "makes param NaN or infinite"),
}
SILENT = (
    "SharpnessAware",
    "ScheduleInside",
    "HoldsReferences",
    "OneDimension",
    "OneDimensionFromTheBegin",
    "of_model_params",
    "that_says_what_it_makes",
)


@pytest.mark.parametrize("name", TOLD)
def test_an_odd_one_is_told_rightly(probe, name):
    codes, words = TOLD[name]
    result = probe(ODD + name)
    assert (result.verdict, {one.code for one in result.findings}) == (Verdict.FAIL, codes)
    assert words in result.findings[0].message


@pytest.mark.parametrize("name", SILENT)
def test_a_legal_one_is_silent(probe, name):
    result = probe(ODD + name)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def test_scenarios_with_modules_are_left_out_for_one_dimension(probe):
    result = probe(ODD + "OneDimension")
    assert any("branch-inactive" in one.reason and "one dimension only" in one.reason for one in result.not_judged)
    assert "branch-inactive" not in {one["scenario"] for one in result.parts["contract"]}


def test_one_that_does_nothing_with_a_gradient_is_no_pass(probe):
    result = probe(ODD + "DoesNothing")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "changes nothing with a nonzero gradient" in result.not_judged[0].reason


def test_one_that_does_not_repeat_is_not_blamed_for_its_reload(probe):
    result = probe(ODD + "NotRepeating")
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert any(one.code == "CK703" and "does not repeat" in one.reason for one in result.not_judged)

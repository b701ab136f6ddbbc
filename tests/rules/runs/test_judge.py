"""The choice of the cause, what is not judged, and the table of rules."""

from dataclasses import fields, replace

import pytest

from ckptcheck.comparison.freezing import Breach
from ckptcheck.comparison.traces import Difference
from ckptcheck.finding import Severity
from ckptcheck.rules.runs.case import Case, Saving
from ckptcheck.rules.runs.judge import WHY_NOT, judge
from ckptcheck.rules.runs.legal import CODE_OF_SECTION
from ckptcheck.rules.runs.table import CAUSES, ROOTS, RUN_RULES
from ckptcheck.state.stages import STAGES
from ckptcheck.trace.items import Item
from tests.rules.runs import (
    test_binding,
    test_completeness,
    test_frozen,
    test_numbers,
    test_resume,
    test_trajectory,
)
from tests.rules.trainings import Training, factory


def a_breach(step: int, what: str = "param") -> tuple[Breach, ...]:
    return (Breach(what, "layers.0.weight", "hold", "layers.*", step),)


PERTURBED = (Saving(3, (Difference(3, Item("rng", "torch"), None, None),), Difference(4, Item("loss"), None, None)),)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        (("model", "optimizer0", "data"), ["CK309", "CK201", "CK604"]),
        (("optimizer0", "data"), ["CK201", "CK604"]),
        (("model", "data"), ["CK309", "CK604"]),
    ],
)
def test_of_several_faults_at_the_load_the_most_specific_is_the_cause(trial, lost, expected):
    found = trial(factory(lose=lost))
    assert found.codes == expected
    assert found.code == expected[0]


def test_findings_come_with_the_cause_first_and_errors_before_warnings(trial):
    def change(self: Training) -> None:
        self.optimizers[0].param_groups[0]["weight_decay"] = 0.5

    found = trial(factory(lose=("data",), after_load=change))
    assert found.codes == ["CK306", "CK604"]
    assert found.finding.severity == Severity.WARNING


def test_a_fault_at_the_load_comes_before_what_follows_from_it(trial):
    def scaled(self: Training, s: int):
        return Training.loss_of(self, s) * (2 if self.checkpointed else 1)

    def finish(self: Training) -> None:
        self.checkpointed = False

    def after(self: Training) -> None:
        self.checkpointed = True

    parts = {"finish": finish, "loss_of": scaled, "after_load": after}
    assert trial(factory(**parts)).codes == ["CK606"]
    assert trial(factory(**parts, lose=("optimizer0",))).codes == ["CK201"]


@pytest.mark.parametrize(("breached", "cause"), [(1, "CK401"), (3, "CK401"), (4, "CK609"), (5, "CK609")])
def test_a_save_that_perturbs_comes_before_the_load_and_after_what_its_run_broke_until_then(trial, breached, cause):
    case = replace(trial(factory(lose=("optimizer0",))).case, saving=PERTURBED, breaches=a_breach(breached))
    judgement = judge(case)
    assert judgement.cause.code == cause
    assert {"CK609", "CK401", "CK201"} <= {one.code for one in judgement.findings}


@pytest.mark.parametrize(("step", "cause"), [(2, "CK401"), (3, "CK401"), (5, "CK201")])
def test_a_broken_freeze_is_the_cause_where_it_comes_first(trial, step, cause):
    case = replace(trial(factory(lose=("optimizer0",))).case, breaches=a_breach(step))
    assert judge(case).cause.code == cause


def test_roots_need_no_resume(trial):
    case = replace(trial(factory()).case, breaches=a_breach(5))
    assert judge(case).cause.code == "CK401"
    assert judge(Case("reference", 0, breaches=a_breach(2))).cause.code == "CK401"
    assert judge(Case("reference", 0, saving=PERTURBED)).cause.code == "CK609"


def test_a_gradient_that_moved_nothing_is_no_cause(trial):
    case = replace(trial(factory()).case, breaches=a_breach(2, "gradient"))
    judgement = judge(case)
    assert judgement.cause is None
    assert [one.severity for one in judgement.findings if one.code == "CK403"] == [Severity.WARNING]


def test_what_is_without_effect_is_never_the_cause(trial):
    found = trial(factory())
    assert found.codes == ["CK613"]
    assert found.code is None


@pytest.mark.parametrize(
    ("select", "ignore", "cause", "codes"),
    [
        (("CK",), (), "CK309", {"CK309", "CK201", "CK604"}),
        (("CK2",), (), "CK201", {"CK201"}),
        (("CK",), ("CK3",), "CK201", {"CK201", "CK604"}),
        (("CK",), ("CK309", "CK201", "CK604"), None, set()),
        (("CK604", "CK205"), (), "CK604", {"CK604"}),
    ],
)
def test_codes_are_selected_and_ignored_by_prefix(trial, select, ignore, cause, codes):
    judgement = judge(trial(factory(lose=("model", "optimizer0", "data"))).case, select, ignore)
    assert {one.code for one in judgement.findings} >= codes
    if cause is not None:
        assert judgement.cause.code == cause
    assert all(one.code.startswith(select) and not (ignore and one.code.startswith(ignore))
               for one in judgement.findings)  # fmt: skip
    assert judgement.place is not None


def test_an_ignored_difference_without_effect_is_not_told(trial):
    assert judge(trial(factory()).case, ignore=("CK613",)).findings == ()


def test_what_lacks_its_evidence_is_not_judged_and_says_why():
    judgement = judge(Case("x", 3))
    assert judgement.findings == ()
    assert judgement.cause is judgement.place is None
    reasons = {one.code: one.reason for one in judgement.not_judged}
    assert set(reasons) == {one.code for one in RUN_RULES if one.needs}
    assert reasons["CK201"] == WHY_NOT["load"]
    assert reasons["CK401"] == WHY_NOT["breaches"]
    assert reasons["CK609"] == WHY_NOT["saving"]
    assert reasons["CK606"] == WHY_NOT["trajectory"]
    without_built = judge(Case("x", 3), select=("CK205",))
    assert [one.code for one in without_built.not_judged] == ["CK205"]


def test_everything_is_judged_where_all_is_there(trial):
    found = trial(factory())
    judgement = judge(replace(found.case, breaches=(), saving=()))
    assert judgement.not_judged == ()


def test_a_run_that_raises_while_loading_is_a_failure(trial):
    def load(self: Training, path) -> None:
        raise OSError("the disk is gone")

    found = trial(factory(load=load))
    assert (found.code, found.judgement.cause.confidence) == ("CK610", "unknown")
    assert found.finding.evidence["raised"] == "OSError: the disk is gone (while loading the checkpoint)"


# The table.

TABLES = (test_binding, test_completeness, test_frozen, test_numbers)
FIRING = {one.code for module in TABLES for one in module.FAULTS} | {one.code for one in test_resume.TABLE}
FIRING |= {one.code for one in test_trajectory.FAULTS} | {code for one in test_frozen.BREACHES for code in one.found}
FIRING |= {code for one in test_resume.TABLE for code in one.beside}


def test_every_rule_has_a_row_that_fires():
    # They need runs without a save, numbers that are not finite in both runs, another environment, a signal.
    elsewhere = {"CK501", "CK609", "CK611", "CK614", "CK615"}
    assert {one.code for one in RUN_RULES} == FIRING | elsewhere


def test_rules_need_only_what_a_case_may_lack():
    optional = {field.name for field in fields(Case) if getattr(Case("x", 0), field.name) is None}
    needed = {need for one in RUN_RULES for need in one.needs}
    assert needed <= optional
    assert needed == set(WHY_NOT)


def test_a_cause_is_named_once_and_by_a_known_code():
    judged, not_yet = {one.code for one in RUN_RULES}, {"CK305"}
    assert len(set(CAUSES)) == len(CAUSES)
    assert set(CAUSES) - not_yet <= judged
    assert set(CAUSES) >= ROOTS
    assert judged - set(CAUSES) == {"CK205", "CK501", "CK611"}
    assert set(CODE_OF_SECTION.values()) <= judged


def test_the_order_of_causes_is_that_of_the_contract():
    contract = (
        "CK301", "CK302", "CK303", "CK304", "CK305", "CK307", "CK309", "CK311", "CK405", "CK406", "CK504", "CK505",
        "CK202", "CK203", "CK201", "CK602", "CK306", "CK603", "CK604", "CK605", "CK608", "CK208", "CK613",
        "CK601", "CK610",
    )  # fmt: skip
    assert tuple(code for code in CAUSES if code in contract) == contract


def test_every_stage_of_a_step_has_a_rule_that_speaks_for_it(trial):
    """Whatever differs first gets a cause: no stage falls through."""
    whole = trial(factory())
    kinds = {"load": None, "rng": "rng", "hyperparameters": "hyper", "inputs": "inputs", "buffers": "buffer",
             "loss": "loss", "grad": "grad", "scaler": "scaler", "state": "state", "param": "param",
             "schedule": "schedule", "ema": "ema", "data": "data", "extra": "extra"}  # fmt: skip
    assert set(kinds) == set(STAGES)
    samples = whole.reference.samples(4, "step")
    one, other = list(samples.values())[:2]
    for stage, kind in kinds.items():
        if kind is None:
            continue
        item = Item(kind, "layers.0.weight", "lr" if kind == "hyper" else "", 0, 0)
        trajectory = replace(whole.case.trajectory, differences=(Difference(4, item, one, other),))
        judgement = judge(replace(whole.case, trajectory=trajectory))
        assert judgement.cause is not None, stage
        assert judgement.place.stage in (stage, "load"), stage


BEFORE = [
    ("CK301", "CK505"), ("CK311", "CK202"), ("CK504", "CK202"), ("CK505", "CK202"), ("CK505", "CK201"),
    ("CK202", "CK201"), ("CK203", "CK201"), ("CK201", "CK602"), ("CK602", "CK306"), ("CK602", "CK603"),
    ("CK306", "CK603"), ("CK603", "CK604"), ("CK604", "CK605"), ("CK605", "CK608"), ("CK608", "CK208"),
    ("CK208", "CK613"), ("CK613", "CK601"), ("CK601", "CK610"), ("CK606", "CK610"), ("CK607", "CK610"),
]  # fmt: skip
"""As the order is promised to users: state and binding, schedule, RNG, data, buffers, scaler, EMA, gradients, load."""


@pytest.mark.parametrize(("first", "second"), BEFORE)
def test_causes_come_in_the_order_that_is_promised(first, second):
    assert CAUSES.index(first) < CAUSES.index(second)

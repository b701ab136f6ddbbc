"""What a section that heals proves: the inferred cause, another one that the rules found too, or neither."""

import pytest

from ckptcheck.experiment.sections import Section
from ckptcheck.finding import Cause, Finding, Place, Result, Severity, Verdict
from ckptcheck.verdict.proof import with_proof

SAID = "putting it back alone heals the run"


def result(inferred: str | None, *found: str, **evidence: bool) -> Result:
    """A run that diverges, with this cause and a finding of each code, at a step of its own."""
    findings = tuple(
        Finding(code, code.lower(), Severity.ERROR, "it differs", Place(step=step), dict(evidence))
        for step, code in enumerate(found, 4)
    )
    cause = Cause(inferred, "likely") if inferred else None
    return Result("verify", Verdict.FAIL, first_divergence=Place(step=4), cause=cause, findings=findings)


@pytest.mark.parametrize(("section", "code"), [("state", "CK505"), ("generator", "CK603"), ("scaler", "CK608")])
def test_a_cause_that_the_section_stands_for_is_proved(section: str, code: str) -> None:
    given = result(code, "CK606", code)
    proved, said = with_proof(given, [Section(section)], SAID)
    assert (proved.cause, said) == (Cause(code, "certain"), "")
    assert [dict(one.evidence) for one in proved.findings] == [{}, {"proved_by": SAID}]
    assert proved.first_divergence == given.first_divergence


def test_another_cause_that_the_rules_found_too_takes_its_place() -> None:
    proved, said = with_proof(result("CK606", "CK606", "CK603"), [Section("generator")], SAID)
    assert (proved.cause, said) == (Cause("CK603", "certain"), "the rules had inferred CK606")
    assert [(one.code, dict(one.evidence)) for one in proved.findings] == [
        ("CK603", {"proved_by": SAID}), ("CK606", {})
    ]  # fmt: skip
    assert proved.first_divergence == Place(step=5)


@pytest.mark.parametrize(("given", "sections"), [
    (result("CK606", "CK606"), [Section("generator")]),
    (result("CK606", "CK606", "CK603", without_effect=True), [Section("generator")]),
    (result("CK606", "CK606", "CK603", "CK608"), [Section("generator"), Section("scaler")]),
])  # fmt: skip
def test_a_cause_that_no_section_stands_for_stays_as_unsure_as_it_was(given: Result, sections: list[Section]) -> None:
    kept, said = with_proof(given, sections, SAID)
    assert kept == given
    assert said.startswith("the rules had inferred CK606, which is not what these sections stand for")


def test_without_an_inferred_cause_nothing_is_proved() -> None:
    assert with_proof(result(None), [Section("state")], SAID) == (result(None), "")

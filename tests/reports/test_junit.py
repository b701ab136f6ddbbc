"""JUnit: which cases there are, and what becomes of each."""

from dataclasses import replace

import pytest

from ckptcheck.finding import Cause, Place, Result, Severity, Verdict
from ckptcheck.reports import text
from ckptcheck.reports.page import Page
from ckptcheck.reports.table import REPORTS
from tests.reports import check_results, results
from tests.reports.pipeline_results import ACCEPTED
from tests.reports.validity import as_junit


def outcomes(result: Result, page: Page | None = None) -> dict[str, str]:
    """Each case with what became of it: "failure", "error", "skipped" or "system-out"."""
    cases = as_junit(REPORTS["junit"](result, page or Page())).iter("testcase")
    return {case.get("name"): case[0].tag for case in cases}


def test_a_junit_case_fails_for_the_verdict_and_for_each_finding_that_gates():
    assert outcomes(results.BROKEN) == {
        "verdict": "failure",
        "CK202 optimizer-state-missing-for-parameter: blocks.0.fc.weight / exp_avg, optimizer 0, group 1": "failure",
        "CK205 rng-state-absent: work/checkpoint.pt": "system-out",
        "CK608": "skipped",
    }


def test_an_accepted_finding_is_a_passing_junit_case_that_says_why():
    assert set(outcomes(ACCEPTED).values()) == {"system-out", "skipped"}
    case = as_junit(REPORTS["junit"](ACCEPTED, Page()))[0].findall("testcase")[1]
    assert "accepted until 2027-01-31: the head is trained anew (ckptcheck.toml, accept[0])" in case[0].text


def test_an_accepted_finding_fails_no_case_beside_one_that_does():
    other = replace(results.BROKEN.findings[0], code="CK301", where=Place(parameter="p"))
    told = outcomes(replace(results.BROKEN, findings=(*ACCEPTED.findings, other), cause=Cause("CK301", "certain")))
    assert [name.split()[0] for name, kind in told.items() if kind == "failure"] == ["verdict", "CK301"]


@pytest.mark.parametrize(("verdict", "page", "kind"), [
    (Verdict.PASS, Page(), "system-out"), (Verdict.FAIL, Page(), "failure"), (Verdict.ERROR, Page(), "error"),
    (Verdict.INCONCLUSIVE, Page(), "error"), (Verdict.INCONCLUSIVE, Page(inconclusive_passes=True), "skipped"),
])  # fmt: skip
def test_the_junit_case_of_a_verdict_is_red_unless_it_passes(verdict, page, kind):
    assert outcomes(Result("verify", verdict, error="x" if verdict is Verdict.ERROR else ""), page) == {"verdict": kind}


def test_warnings_fail_a_junit_case_where_nothing_else_explains_the_fail():
    warned = replace(check_results.WARNED, verdict=Verdict.FAIL, findings=check_results.WARNED.findings)
    gating = {one.code for one in warned.findings if one.severity is Severity.WARNING}
    red = {name.split()[0] for name, kind in outcomes(warned).items() if kind == "failure"}
    assert gating
    assert red == {"verdict", *gating}
    assert "failure" not in {kind for name, kind in outcomes(check_results.WARNED).items()}


def test_what_was_demanded_and_not_judged_fails_no_finding():
    told = outcomes(replace(check_results.DEMANDED, findings=check_results.WARNED.findings))
    assert [name for name, kind in told.items() if kind == "failure"] == ["verdict"]


def test_the_whole_text_stands_in_the_junit_case_of_the_verdict():
    failure = as_junit(REPORTS["junit"](results.BROKEN, Page()))[0].find("testcase/failure")
    assert failure.text == text.render(results.BROKEN, Page())
    assert failure.get("message").startswith("optimizer state missing for parameter (CK202)")

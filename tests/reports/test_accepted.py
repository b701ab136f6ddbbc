"""What is said of what a project lives with: in the first line, beside each finding, and at the end."""

from dataclasses import replace

import pytest

from ckptcheck.finding import Accepted, Result, Verdict
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render
from ckptcheck.reports.words import policy
from tests.reports.check_results import INCOMPLETE, WARNED
from tests.reports.checkpoint_results import GATED
from tests.reports.results import APART, BROKEN

DATED = Accepted("known since run 3", "2027-01-31", "ckptcheck.toml, accept[0]")
KNOWN = Accepted("it was there", None, "baseline b.json")


def accepted(result: Result, how: Accepted, *codes: str, verdict: Verdict = Verdict.PASS) -> Result:
    found = (replace(one, accepted=how) if one.code in codes else one for one in result.findings)
    return replace(result, verdict=verdict, findings=tuple(found))


LOST = "optimizer state missing for parameter (CK202)"
HEADLINES = [
    (accepted(BROKEN, DATED, "CK202"), f"accepted: {LOST}, until 2027-01-31"),
    (accepted(BROKEN, KNOWN, "CK202"), f"accepted: {LOST}, by the baseline b.json"),
    (accepted(BROKEN, replace(DATED, until=None), "CK202"), f"accepted: {LOST}"),
    (accepted(INCOMPLETE, DATED, "CK203"),
     "accepted: optimizer state partial (CK203), until 2027-01-31; beside that: 1 warning, which does not fail the "
     "check"),
    (accepted(INCOMPLETE, KNOWN, "CK203", "CK205", "CK207"),
     "accepted: optimizer state partial (CK203), by the baseline b.json; rng state absent (CK205), by the baseline "
     "b.json; beside that: nothing is missing for a resume"),
    (accepted(INCOMPLETE, DATED, "CK205", verdict=Verdict.FAIL),
     "optimizer state partial (CK203); accepted: rng state absent (CK205), until 2027-01-31"),
    (accepted(WARNED, DATED, "CK207"), "1 warning, which does not fail the check"),
]  # fmt: skip


@pytest.mark.parametrize(("result", "said"), HEADLINES, ids=range(len(HEADLINES)))
def test_the_first_line_says_what_is_accepted_and_until_when(result, said):
    assert headline(result).replace("; the files are whole", "") == said
    assert render(result, Page(width=400, detail=Detail.VERDICT)).startswith(f"{result.verdict.value.upper()}  ")


def test_a_fail_is_told_by_what_is_not_accepted():
    told = accepted(BROKEN, DATED, "CK202", verdict=Verdict.FAIL)
    other = replace(told.findings[0], code="CK301", name="group-membership-mismatch", accepted=None)
    told = replace(told, findings=(*told.findings, other))
    assert headline(told) == f"group membership mismatch (CK301); accepted: {LOST}, until 2027-01-31"


@pytest.mark.parametrize("result", [BROKEN, APART, INCOMPLETE, WARNED, GATED])
def test_where_nothing_is_accepted_nothing_is_said_of_it(result):
    assert "accepted" not in render(result, Page(width=200, detail=Detail.ALL))


def test_the_cause_says_why_it_is_accepted():
    lines = render(accepted(BROKEN, DATED, "CK202"), Page(width=200)).splitlines()
    assert "Accepted     until 2027-01-31: known since run 3 (ckptcheck.toml, accept[0])" in lines
    assert [line for line in lines if line.startswith("Cause")] != []


def test_accepted_findings_come_last_and_have_nothing_to_do():
    text = render(accepted(INCOMPLETE, DATED, "CK203"), Page(width=200))
    assert text.index("CK205 warning: ") < text.index("CK207 info: ") < text.index("CK203 error, accepted: ")
    assert "             accepted until 2027-01-31: known since run 3 (ckptcheck.toml, accept[0])\n" in text
    assert "to do: save every key" not in text
    assert "to do: save every key" in render(accepted(INCOMPLETE, DATED, "CK203"), Page(width=200, detail=Detail.ALL))


ROW = {"code": "CK501", "parameter": "head.*", "reason": "known", "until": "2026-01-31", "source": "f, accept[0]"}
BASELINE = {"path": "b.json", "findings": 4, "gone": [{"code": "CK601", "parameter": "w", "count": 2}], "not_judged": 1}
TOLD = [
    ({"expired": [{**ROW, "findings": 2}]},
     ["Expired      CK501 in head.* until 2026-01-31: 2 findings no longer accepted: known (f, accept[0])"], []),
    ({"expired": [{**ROW, "findings": 0}]}, [],
     ["Expired      CK501 in head.* until 2026-01-31: it meets no finding: known (f, accept[0])"]),
    ({"unused": [{**ROW, "why": None}]}, [],
     ["Unused       CK501 in head.* is accepted, and was not found: known (f, accept[0])"]),
    ({"unused": [{**ROW, "parameter": None, "why": "the finding is about b too"}]},
     ["Unused       CK501 does not accept it: the finding is about b too: known (f, accept[0])"], []),
    ({"baseline": BASELINE},
     ["Baseline     4 findings in b.json; 2 of them are gone: write it anew with --write-baseline; 1 could not be "
      "looked for"], ["               CK601 gone: parameter w"]),
    ({"baseline": {**BASELINE, "findings": 1, "gone": [], "not_judged": 0}}, ["Baseline     1 finding in b.json"], []),
    ({"written": {"path": "b.json", "findings": 1, "error": None}},
     ["Baseline     1 finding written to b.json, and accepted"], []),
    ({"written": {"path": "b.json", "findings": None, "error": "cannot write the baseline b.json: full"}},
     ["Baseline     cannot write the baseline b.json: full"], []),
]  # fmt: skip


@pytest.mark.parametrize(("part", "always", "in_full"), TOLD, ids=range(len(TOLD)))
@pytest.mark.parametrize("result", [BROKEN, INCOMPLETE, GATED], ids=lambda one: one.command)
def test_what_became_of_acceptances_is_told(result, part, always, in_full):
    given = replace(result, parts={**result.parts, "acceptances": {"unused": [], "expired": [], **part}})
    for detail, wanted in ((Detail.NORMAL, always), (Detail.ALL, [*always, *in_full])):
        lines = render(given, Page(width=400, detail=detail)).splitlines()
        plain = render(result, Page(width=400, detail=detail)).splitlines()
        assert [line for line in lines if line not in plain] == wanted


MEASURES = [
    ({"name": "exact", "rtol": 0.0, "atol": 0.0}, "byte for byte"),
    ({"name": "exact", "rtol": 0.001, "atol": 0.0}, "computed values within rtol 0.001"),
    ({"name": "exact", "rtol": 0.001, "atol": 1e-8}, "computed values within rtol 0.001 and atol 1e-08"),
    ({"name": "exact", "rtol": 0.0, "atol": 0.0, "roles": {"param": {"rtol": 0.1, "atol": 0.0},
      "state:bfloat16": {"rtol": 0.1, "atol": 0.2}, "grad": {"rtol": 0.0, "atol": 0.0}}},
     "param within rtol 0.1, state:bfloat16 within rtol 0.1 and atol 0.2, the rest byte for byte"),
    ({"name": "exact", "rtol": 0.5, "atol": 0.0, "roles": {"param": {"rtol": 0.1, "atol": 0.0}}},
     "param within rtol 0.1, other computed values within rtol 0.5"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "said"), MEASURES, ids=range(len(MEASURES)))
def test_the_measure_is_told_role_by_role(part, said):
    assert policy(part) == said

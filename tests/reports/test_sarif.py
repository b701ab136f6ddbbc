"""SARIF: results, places, rules and what code scanning makes of them."""

from dataclasses import replace

import pytest

from ckptcheck.finding import Cause, Finding, Place, Result, Verdict
from ckptcheck.reports.page import Page
from ckptcheck.reports.table import REPORTS
from tests.reports import results
from tests.reports.pipeline_results import ACCEPTED, UNEXPLAINED
from tests.reports.validity import as_sarif


def run_of(result: Result, page: Page | None = None) -> dict:
    return as_sarif(REPORTS["sarif"](result, page or Page()))["runs"][0]


def test_a_sarif_result_has_level_place_and_message():
    first, second = run_of(results.BROKEN)["results"]
    assert [(one["ruleId"], one["level"]) for one in (first, second)] == [("CK202", "error"), ("CK205", "warning")]
    assert first["message"]["text"].endswith("have theirs\nTo do: Save optimizer.state_dict() whole, and load it after "
                                             "the parameters are in their groups.")  # fmt: skip
    names = [one["fullyQualifiedName"] for one in first["locations"][0]["logicalLocations"] if one["kind"] != "step"]
    assert names == ["rank 0/optimizer 0/group 1", "rank 0/optimizer 0/group 1/blocks.0.fc.weight/exp_avg"]
    assert second["locations"][0]["physicalLocation"]["artifactLocation"] == {"uri": "work/checkpoint.pt"}


@pytest.mark.parametrize(("parts", "uri"), [
    ({"path": "ckpt"}, "ckpt"), ({"right": {"path": "b.pt"}, "left": {}}, "b.pt"), ({"right": "t2"}, "t2"),
    ({"target": "a/train.py"}, "a/train.py"), ({"target": "train.py:build"}, "train.py"),
    ({"run": "python -u src/train.py --out {dir} x.py"}, "src/train.py"), ({"target": "package.module:build"}, None),
    ({"run": "train"}, None), ({}, None), ({"path": 5, "target": {"path": ""}, "run": None}, None),
])  # fmt: skip
def test_a_finding_without_a_file_is_about_that_of_the_result(parts, uri):
    finding = replace(results.BROKEN.findings[0])
    (told,) = run_of(replace(results.BROKEN, findings=(finding,), parts=parts))["results"]
    place = told["locations"][0].get("physicalLocation", {"artifactLocation": {"uri": None}})
    assert place["artifactLocation"]["uri"] == uri


@pytest.mark.parametrize(("path", "uri"), [
    ("a b/ü%.pt", "a%20b/%C3%BC%25.pt"), ("./x", "x"), ("/data/x y", "file:///data/x%20y"), ("a:b", "a%3Ab"),
    ("caf\udce9", "caf%E9"), ("h\ud800", "h%ED%A0%80"), ("../x#?", "../x%23%3F"),
])  # fmt: skip
def test_a_path_becomes_a_uri_of_the_same_bytes(path, uri):
    finding = replace(results.BROKEN.findings[1], where=Place(path=path))
    told = run_of(replace(results.BROKEN, findings=(finding,)))["results"][0]
    assert told["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_a_fingerprint_stays_while_numbers_and_steps_change_and_tells_places_apart():
    def mark(finding: Finding) -> str:
        told = run_of(replace(results.BROKEN, findings=(finding,), cause=Cause("CK202", "certain")))["results"][0]
        return told["partialFingerprints"]["ckptcheckFinding/v1"]

    first = results.BROKEN.findings[0]
    later = replace(first, message="other", evidence={}, where=replace(first.where, step=12, stage="param"))
    assert mark(first) == mark(later)
    others = [replace(first.where, **{name: value}) for name, value in
              {"parameter": "p", "key": "k", "optimizer": 1, "group": 0, "rank": 1, "path": "q"}.items()]  # fmt: skip
    assert len({mark(first), *(mark(replace(first, where=where)) for where in others)}) == 7


def test_an_accepted_finding_is_suppressed_in_sarif():
    first, second = sorted(run_of(ACCEPTED)["results"], key=lambda one: one["ruleId"])
    assert first["suppressions"] == [{
        "kind": "external", "status": "accepted",
        "justification": "accepted until 2027-01-31: the head is trained anew (ckptcheck.toml, accept[0])",
    }]  # fmt: skip
    assert "suppressions" not in second


def test_a_fail_that_no_finding_explains_is_a_sarif_result_all_the_same():
    run = run_of(UNEXPLAINED)
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("verdict", "error")]
    assert run["invocations"][0]["exitCode"] == 1
    passes = Result("verify", Verdict.INCONCLUSIVE)
    assert [one["level"] for one in run_of(passes)["results"]] == ["warning"]
    assert [one["level"] for one in run_of(passes, Page(inconclusive_passes=True))["results"]] == ["note"]
    assert run_of(results.CLEAN)["results"][0]["ruleId"] == "CK613"


def test_what_was_not_judged_is_a_notification_and_an_error_no_success():
    notes = run_of(results.BROKEN)["invocations"][0]["toolExecutionNotifications"]
    assert [one.get("associatedRule", {}).get("id") for one in notes] == [None, "CK608"]
    refusal = run_of(results.REFUSED)["invocations"][0]
    assert (refusal["executionSuccessful"], refusal["exitCode"]) == (False, 2)
    assert refusal["toolExecutionNotifications"][0]["level"] == "error"


def test_a_rule_says_what_its_card_says():
    card = {"name": "optimizer-state-missing", "severity": "warning", "what": "A {t} lacks.", "why": "It is.",
            "example": "e", "fix": "Do.", "limits": "None."}  # fmt: skip
    rule = run_of(results.BROKEN, Page(cards={"CK202": card}))["tool"]["driver"]["rules"][0]
    assert rule["shortDescription"] == {"text": "A {{t}} lacks."}, "doubled braces are no placeholder"
    assert rule["help"]["text"] == "Why it matters: It is.\nExample: e\nWhat to do: Do.\nLimits: None."
    assert (rule["name"], rule["defaultConfiguration"]) == ("optimizer-state-missing", {"level": "warning"})

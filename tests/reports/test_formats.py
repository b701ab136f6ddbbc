"""Every format of every result is one valid document, whatever the names are."""

import json

import pytest

from ckptcheck.finding import Result
from ckptcheck.reports.page import Page
from ckptcheck.reports.table import REPORTS, TOGETHER
from tests.reports import check_results, checkpoint_results, results
from tests.reports.awkward import NAMES, awkward, refused
from tests.reports.pipeline_results import ACCEPTED, MANY, UNEXPLAINED
from tests.reports.validity import VALID, as_json, as_junit, as_sarif

BY_HAND = {name: one for module in (results, check_results, checkpoint_results) for name, one in vars(module).items()
           if isinstance(one, Result)}  # fmt: skip


@pytest.mark.parametrize("form", VALID)
@pytest.mark.parametrize("name", [*BY_HAND, "ACCEPTED", "MANY", "UNEXPLAINED"])
def test_every_result_makes_a_valid_document(form, name):
    result = (BY_HAND | {"ACCEPTED": ACCEPTED, "MANY": MANY, "UNEXPLAINED": UNEXPLAINED})[name]
    if form == "json" and name in ("HOSTILE", "UNEXPLAINED"):
        return  # made by hand without the parts of their command
    VALID[form](REPORTS[form](result, Page()))


@pytest.mark.parametrize("form", VALID)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_would_do_harm_makes_a_valid_document(form, name):
    for result in (awkward(NAMES[name]), refused(NAMES[name])):
        VALID[form](REPORTS[form](result, Page()))


@pytest.mark.parametrize("form", [form for form in VALID if form != "json"])
def test_parts_that_would_do_harm_make_a_valid_document(form):
    VALID[form](REPORTS[form](checkpoint_results.hostile(checkpoint_results.DIFFERENT), Page()))


@pytest.mark.parametrize("form", VALID)
def test_several_results_make_one_valid_document(form):
    both = (results.CLEAN, results.BROKEN, checkpoint_results.DIFFERENT)
    whole = TOGETHER[form](both, Page()) if form in TOGETHER else "".join(REPORTS[form](one, Page()) for one in both)
    VALID[form](whole)
    if form == "junit":
        assert [suite.get("name") for suite in as_junit(whole)] == [
            "ckptcheck verify train.py", "ckptcheck verify train.py", "ckptcheck diff run/step_10.pt run/step_20.pt",
        ]  # fmt: skip
    if form == "sarif":
        assert len(as_sarif(whole)["runs"]) == 3
    if form == "json":
        assert [one["command"] for one in as_json(whole)] == ["verify", "verify", "diff"]


def test_json_of_an_accepted_finding_says_why():
    told = as_json(json.dumps(json.loads(REPORTS["json"](ACCEPTED, Page()))) + "\n")
    assert told["findings"][0]["accepted"]["until"] == "2027-01-31"

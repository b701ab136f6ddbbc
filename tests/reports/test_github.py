"""Annotations of GitHub Actions."""

from dataclasses import replace

import pytest

from ckptcheck.finding import Place
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.table import REPORTS
from tests.reports import results
from tests.reports.pipeline_results import ACCEPTED, MANY
from tests.reports.validity import as_github


def test_the_verdict_is_the_first_annotation_and_findings_follow_by_weight():
    told = as_github(REPORTS["github"](results.BROKEN, Page()))
    assert [(level, properties["title"]) for level, properties, _ in told] == [
        ("error", "FAIL: ckptcheck verify train.py"),
        ("error", "CK202 optimizer-state-missing-for-parameter"),
        ("warning", "CK205 rng-state-absent"),
    ]
    assert told[2][1]["file"] == "work/checkpoint.pt"
    assert told[2][2] == "the checkpoint holds no generator state of numpy\nTo do: Save numpy.random.get_state()."


def test_what_ends_a_property_or_a_line_is_escaped():
    finding = replace(
        results.BROKEN.findings[1], message="50 %0A %25 of\r\n::error::", where=Place(path="a,b:c/100%.pt")
    )
    _, told = as_github(REPORTS["github"](replace(results.CLEAN, findings=(finding,)), Page()))
    assert told[1]["file"] == "a,b:c/100%.pt"
    assert told[2].startswith("50 %0A %25 of\\r\\n::error::")


@pytest.mark.parametrize("path", ["/data/x.pt", "../x.pt", "~/x.pt"])
def test_a_file_outside_of_the_repository_is_not_annotated(path):
    finding = replace(results.BROKEN.findings[1], where=Place(path=path))
    _, told = as_github(REPORTS["github"](replace(results.CLEAN, findings=(finding,)), Page()))
    assert "file" not in told[1]


def test_no_more_annotations_than_github_shows_and_the_last_counts_the_rest():
    told = as_github(REPORTS["github"](MANY, Page()))
    levels = [level for level, _, _ in told]
    assert {level: levels.count(level) for level in levels} == {"error": 10, "warning": 10, "notice": 10}
    titles = [properties["title"] for level, properties, _ in told if properties["title"].endswith(" more")]
    assert titles == ["292 more", "291 more", "291 more"]


def test_accepted_findings_are_notices_and_quiet_is_the_verdict_alone():
    told = as_github(REPORTS["github"](ACCEPTED, Page()))
    assert [level for level, _, _ in told] == ["notice", "warning", "notice"]
    assert len(as_github(REPORTS["github"](results.BROKEN, Page(detail=Detail.VERDICT)))) == 1

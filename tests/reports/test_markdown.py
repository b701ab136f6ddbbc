"""Markdown for a comment or a job summary."""

from dataclasses import replace

import pytest

from ckptcheck.finding import NotJudged, Place
from ckptcheck.reports import text
from ckptcheck.reports.page import Page
from ckptcheck.reports.table import REPORTS
from tests.reports import checkpoint_results, results
from tests.reports.awkward import NAMES
from tests.reports.pipeline_results import ACCEPTED, MANY
from tests.reports.validity import as_markdown


def test_markdown_says_verdict_cause_first_divergence_and_findings():
    page = as_markdown(REPORTS["markdown"](results.BROKEN, Page()))
    assert page.find("h3").text_content() == "FAIL: ckptcheck verify train.py"
    cause, to_do, first, compared = (one.text_content().strip() for one in page.find("ul"))
    assert cause.startswith("Cause: CK202 optimizer-state-missing-for-parameter (certain): after the load")
    assert to_do.startswith("To do: Save optimizer.state_dict()")
    assert first.startswith("First divergence: step 10, right after the load, blocks.0.fc.weight / exp_avg")
    assert compared == "Compared: 10 steps, 12 parameters, 36 state tensors, 120.6 KiB"
    rows = [[cell.text_content() for cell in row] for row in page.find("table/tbody")]
    assert [row[0] for row in rows] == ["error", "warning"]
    assert rows[1][1:] == ["CK205 rng-state-absent: the checkpoint holds no generator state of numpy",
                           "work/checkpoint.pt", "Save numpy.random.get_state()."]  # fmt: skip
    assert [one.text for one in page.iter("summary")] == ["1 rule not judged", "Whole report"]


@pytest.mark.parametrize("name", ["is markup", "calls people", "begins a line", "ends a section"])
def test_a_name_reads_in_markdown_as_it_is(name):
    finding = replace(results.BROKEN.findings[1], message=NAMES[name], where=Place(parameter=NAMES[name]))
    page = as_markdown(REPORTS["markdown"](replace(results.CLEAN, findings=(finding,)), Page()))
    row = page.find("table/tbody/tr")
    shown = row[1].text_content().replace("\u200b", "").removeprefix("CK205 rng-state-absent: ")
    assert " ".join(shown.split()) == " ".join(NAMES[name].split())
    assert " ".join(row[2].text_content().replace("\u200b", "").split()) == " ".join(NAMES[name].split())


def test_the_whole_report_ends_where_it_ends_though_a_line_of_it_looks_like_the_end():
    fenced = replace(checkpoint_results.INSPECTED, parts={**checkpoint_results.INSPECTED.parts, "path": "`" * 250})
    page = as_markdown(REPORTS["markdown"](fenced, Page()))
    (whole,) = page.iter("pre")
    assert whole.text_content() == text.render(fenced, Page())


@pytest.mark.parametrize("length", [3, 300])
def test_markdown_counts_what_does_not_fit(length):
    findings = tuple(
        replace(one, where=replace(one.where, parameter=f"{one.where.parameter}|" * length), message="m`|" * length)
        for one in MANY.findings
    )
    reasons = tuple(NotJudged("CK501", f"{number} {'r' * length}") for number in range(2000))
    told = REPORTS["markdown"](replace(MANY, findings=findings, not_judged=reasons), Page())
    page = as_markdown(told)
    shown = len(page.xpath("//tbody/tr"))
    assert f"And {len(findings) - shown} findings more that do not fit here" in told
    assert shown >= 15
    listed = page.xpath("//details[summary[contains(., 'not judged')]]//li")
    assert listed[-1].text_content() == f"and {2000 - len(listed) + 1} more"


def test_an_accepted_finding_is_marked_in_markdown():
    page = as_markdown(REPORTS["markdown"](ACCEPTED, Page()))
    assert [row[0].text_content() for row in page.find("table/tbody")] == ["warning", "accepted"]
    assert "(accepted until 2027-01-31: the head is trained anew" in page.text_content()

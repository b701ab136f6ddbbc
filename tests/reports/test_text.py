from dataclasses import replace

import pytest

from ckptcheck.finding import Cause, Finding, NotJudged, Place, Result, Severity, Verdict
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render
from tests.reports.results import BROKEN, CLEAN, HOSTILE, NOISY, REFUSED

ALL = (CLEAN, BROKEN, NOISY, REFUSED, HOSTILE)


@pytest.mark.parametrize("width", [40, 60, 120])
@pytest.mark.parametrize("result", ALL, ids=lambda result: result.verdict.value)
def test_no_line_is_wider_than_the_page_or_ends_in_blanks(result, width):
    for line in render(result, Page(width=width)).splitlines():
        assert len(line) <= width
        assert line == line.rstrip()


def test_the_verdict_names_the_cause_in_words_on_the_first_line():
    first = render(BROKEN, Page(width=120)).splitlines()[0]
    assert first == "FAIL  optimizer state missing for parameter (CK202), first at step 10, right after the load"


def test_a_page_for_the_verdict_alone_holds_one_line():
    assert len(render(BROKEN, Page(width=120, detail=Detail.VERDICT)).splitlines()) == 1


def test_a_page_without_colour_holds_no_escape_sequence():
    assert "\x1b" not in render(BROKEN, Page(color=False))


def test_a_page_with_colour_says_the_same():
    coloured = render(BROKEN, Page(color=True))
    assert "\x1b[1;31m" in coloured
    assert "optimizer state missing for parameter" in coloured


def test_the_environment_variables_of_rich_change_nothing(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in render(BROKEN, Page(color=False))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" in render(BROKEN, Page(color=True))


@pytest.mark.parametrize("detail", list(Detail))
def test_hostile_names_reach_the_page_spelled_out(detail):
    text = render(HOSTILE, Page(detail=detail)).replace("\n", "")
    assert all(character.isprintable() for character in text)
    assert "[bold red]" in render(HOSTILE, Page(width=300)), "markup is text"


def test_an_ascii_page_holds_ascii_only():
    assert render(HOSTILE, Page(ascii_only=True)).isascii()


def test_nothing_compared_is_said():
    assert "Compared\n  nothing" in render(Result("compare", Verdict.INCONCLUSIVE), Page())


@pytest.mark.parametrize("command", ["save", "resume"])
def test_a_command_that_compares_nothing_does_not_speak_of_it(command):
    text = render(Result(command, Verdict.PASS, parts={"checkpoint": "out", "step": 10}), Page())
    assert "Compared" not in text
    assert "checkpoint: out" in text


def test_rules_not_judged_for_one_reason_share_a_line():
    assert "CK609, CK611:  --quick left the repeat out" in render(CLEAN, Page())


def test_long_lists_are_cut_with_a_word_about_it_unless_all_is_wanted():
    one = Finding("CK614", "environment-changed", Severity.WARNING, "threads differ", Place())
    many = Result("verify", Verdict.PASS, findings=(one,) * 20)
    assert "and 14 more; -v shows all" in render(many, Page())
    assert render(many, Page(detail=Detail.ALL)).count("threads differ") == 20


def test_a_fail_by_findings_alone_names_the_most_severe():
    warning = Finding("CK614", "environment-changed", Severity.WARNING, "threads differ", Place())
    info = Finding("CK308", "names-not-aligned", Severity.INFO, "no names", Place())
    failed = Result("verify", Verdict.FAIL, findings=(info, warning))
    assert render(failed, Page()).startswith("FAIL  environment changed (CK614)\n")


@pytest.mark.parametrize("parts", [
    {},
    {"trajectory": None, "crossed": None, "runs": None, "magnitudes": None},
    {"trajectory": [{}], "crossed": {}, "runs": [{}], "magnitudes": [{}]},
    {"trajectory": "x", "crossed": [1], "runs": {"a": 1}, "magnitudes": [None]},
])  # fmt: skip
def test_absent_or_empty_parts_are_tolerated(parts):
    assert render(replace(BROKEN, parts=parts), Page()).startswith("FAIL")


def test_a_cause_without_its_finding_is_still_told():
    result = Result("verify", Verdict.FAIL, cause=Cause("CK610", "unknown"), not_judged=(NotJudged("CK1", "x"),))
    assert "CK610" in render(result, Page()).splitlines()[0]

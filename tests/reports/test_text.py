from dataclasses import replace

import pytest

from ckptcheck.finding import Cause, Finding, NotJudged, Place, Result, Severity, Verdict
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render
from tests.reports.results import APART, BROKEN, CLEAN, HOSTILE, NOISY, RAISED, REFUSED, SAVED

ALL = (CLEAN, BROKEN, RAISED, APART, SAVED, NOISY, REFUSED, HOSTILE)


@pytest.mark.parametrize("width", [40, 60, 120])
@pytest.mark.parametrize("result", ALL)
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


def test_the_style_of_a_label_does_not_run_on_into_its_row():
    assert "\x1b[1mCompared     \x1b[0m10 steps" in render(CLEAN, Page(color=True))


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
    said = render(Result("compare", Verdict.INCONCLUSIVE), Page())
    assert said.startswith("INCONCLUSIVE  nothing could be compared\n")
    assert "Compared     nothing" in said


def test_a_pass_fits_on_about_ten_lines():
    assert len(render(CLEAN, Page(width=80)).splitlines()) <= 12


def test_a_difference_without_effect_is_one_row_and_no_finding():
    said = render(CLEAN, Page(width=200))
    assert "No effect    CK613 gradients of 12 parameters left over" in said
    assert "ound" not in said.split("No effect")[0]


def test_what_has_no_effect_at_several_resume_points_is_one_row_that_names_them():
    alike = [replace(one, where=replace(one.where, step=step), evidence={**one.evidence, "run": f"resumed@{step}"})
             for one in CLEAN.findings if one.evidence.get("without_effect") for step in (4, 8)]  # fmt: skip
    told = replace(CLEAN, findings=tuple(alike), parts={**CLEAN.parts, "resume_at": [4, 8]})
    said = render(told, Page(width=200))
    assert said.count("CK613") == len(alike) // 2 == 1
    assert "on the steps that follow (resumed@4, resumed@8)" in said
    assert render(told, Page(width=200, detail=Detail.ALL)).count("CK613") == 2
    assert "resumed@8)" not in render(replace(told, findings=tuple(alike[1:]), parts=CLEAN.parts), Page(width=200))


def test_what_is_missing_is_said_to_be_missing():
    said = render(BROKEN, Page(width=120))
    assert "\n             missing after the load\n" in said
    assert "no magnitudes" not in said


def test_what_the_resumed_run_raised_is_said():
    said = render(RAISED, Page(width=120))
    assert "the resumed run then raised KeyError: 'exp_avg_sq' (in step 11)" in said
    assert "resumed@10 2.9 s (raised)" in said


def test_the_greatest_differences_of_the_first_divergent_step_have_numbers():
    said = render(BROKEN, Page(width=120))
    assert "blocks.0.fc.weight / exp_avg: 4096 of 4096 differ, max abs 0.00123 at (0, 17), rel L2 1, 853 sign" in said
    assert "blocks.0.fc.weight / step: off by 10" in said
    assert "1929850865" not in said, "a distance in ULP beyond a million tells nothing"


def test_everything_there_is_stands_on_a_page_for_all():
    said = render(BROKEN, Page(width=120, detail=Detail.ALL))
    for number in ("1929850865", "15073280", "2 NaN", "recording_s 0.01", "glibc2.36", "work/checkpoint.pt"):
        assert number in " ".join(said.split())


def test_gradients_left_over_at_the_save_are_left_out_unless_they_are_the_cause():
    assert "1 gradient" not in render(BROKEN, Page())
    assert "1 gradient" in render(replace(BROKEN, cause=Cause("CK613", "certain")), Page())


def test_the_growth_of_the_difference_is_thinned_out_where_it_is_long():
    steps = [{"run": "r", "step": step, "stage": "param", "section": "param", "parameter": "w", "rel_l2": step / 100}
             for step in range(1, 31)]  # fmt: skip
    long = replace(BROKEN, parts={"trajectory": steps})
    assert "after step 1: 0.01, 2: 0.02, 3: 0.03, 4: 0.04, ..., 28: 0.28, 29: 0.29, 30: 0.3" in render(long, Page(200))
    assert "15: 0.15" in render(long, Page(200, detail=Detail.ALL))


def test_differences_that_are_not_finite_come_first_and_break_nothing():
    entries = [{"run": "r", "step": 1, "stage": "param", "section": "param", "parameter": name, "max_abs": most,
                "rel_l2": relative} for name, most, relative in
               (("small", 0.1, 0.1), ("broken", float("nan"), float("inf")), ("new", 1.0, None))]  # fmt: skip
    said = render(replace(BROKEN, parts={"trajectory": entries}), Page())
    assert said.index("broken: max abs nan") < said.index("new: ") < said.index("small: ")


def test_a_report_never_leaves_two_lines_empty():
    assert not any("\n\n\n" in render(result, Page(detail=detail)) for result in ALL for detail in Detail)


def test_the_environments_of_two_traces_stand_apart_where_they_differ():
    said = render(APART, Page(width=120))
    assert "left: python 3.11.7, torch 2.13.0, device cpu\n" in said
    assert "right: python 3.11.7, torch 2.13.0, device cuda\n" in said


@pytest.mark.parametrize("command", ["save", "resume"])
def test_a_command_that_compares_nothing_does_not_speak_of_it(command):
    text = render(Result(command, Verdict.PASS, parts={"checkpoint": "out", "step": 10}), Page())
    assert "Compared" not in text
    assert "Checkpoint   out" in text


def test_rules_not_judged_for_one_reason_share_a_line():
    assert "CK609, CK611: --quick left the repeat out" in render(CLEAN, Page())


def test_many_rules_not_judged_are_counted_unless_all_is_wanted():
    many = replace(CLEAN, not_judged=tuple(NotJudged(f"CK30{place}", "no load") for place in range(8)))
    assert "8 rules (-v names them): no load" in render(many, Page())
    assert "CK300, CK301" in render(many, Page(detail=Detail.ALL))


def test_findings_of_one_kind_share_a_row_unless_all_is_wanted():
    one = Finding("CK614", "environment-changed", Severity.WARNING, "threads differ", Place())
    many = Result("verify", Verdict.PASS, findings=(one,) * 20)
    assert "threads differ (and 19 more like it; -v shows all)" in render(many, Page())
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


def test_what_a_resumed_run_said_last_is_shown():
    where = Place(step=6, stage="load")
    last = ["  line 6, in load", "KeyError: 'steps'"]
    found = Finding("CK610", "unexplained-divergence", Severity.ERROR, "it failed", where, {"last_lines": last})
    text = render(Result("verify", Verdict.FAIL, first_divergence=where, cause=Cause("CK610", "unknown"),
                         findings=(found,)), Page())  # fmt: skip
    assert "its last lines:   line 6, in load\n" in text and "KeyError: 'steps'\n" in text


def test_a_signal_that_left_no_checkpoint_is_told_by_when_it_came():
    where = Place(step=6)
    found = Finding("CK615", "interrupt-left-no-checkpoint", Severity.ERROR, "2 steps lost", where)
    text = render(Result("verify", Verdict.FAIL, first_divergence=where, cause=Cause("CK615", "certain"),
                         findings=(found,)), Page())  # fmt: skip
    assert text.splitlines()[0].endswith("(CK615), at step 6, when the signal came")

"""What the texts about one checkpoint say of a load that was tried and of a run, beside the kept ones."""

from dataclasses import replace
from typing import Any

import pytest

from ckptcheck.finding import Finding, NotJudged, Place, Result, Severity, Verdict
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render
from tests.reports.check_results import (
    DEMANDED,
    FIT,
    FLOODED,
    INCOMPLETE,
    RELEASED,
    SERIES,
    UNNAMED,
    UNTRIED,
    WARNED,
    member,
    target,
)
from tests.reports.checkpoint_results import hostile

ALL = (DEMANDED, FIT, FLOODED, INCOMPLETE, RELEASED, UNNAMED, UNTRIED, WARNED)


def first(result: Result) -> str:
    return render(result, Page(width=1000)).splitlines()[0]


def tried(base: Result = FIT, **more: Any) -> Result:
    return replace(base, parts=base.parts | {"target": target(**more)})


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("result", [*ALL, *map(hostile, ALL)])
def test_no_line_is_wider_than_the_page_or_ends_in_blanks(result, width, detail):
    for line in render(result, Page(width=width, detail=detail, ascii_only=True)).splitlines():
        assert len(line) <= width
        assert line == line.rstrip()


@pytest.mark.parametrize("detail", list(Detail))
@pytest.mark.parametrize("result", ALL)
def test_hostile_names_reach_the_page_spelled_out(result, detail):
    assert all(one.isprintable() for one in render(hostile(result), Page(detail=detail)).replace("\n", ""))


HELD = [
    ({}, "weights, optimizer state, hyperparameters, groups, order and shapes held"),
    ({"judged": ["CK309"]}, "weights held"),
    ({"judged": ["CK202", "CK301", "CK304", "CK309"]}, "weights, optimizer state, groups and shapes held"),
    ({"left_out": ["model: the file has none"]}, "optimizer state, hyperparameters, groups, order and shapes held"),
    ({"left_out": ["optimizer: the target has 1, 2 found in the file"]}, "weights held"),
    ({"pairs": [{"optimizer": 0, "class": "SGD", "file": None, "named": False}]}, "weights held"),
]


@pytest.mark.parametrize(("more", "held"), HELD)
def test_the_headline_says_what_was_held_against_the_training_and_no_more(more, held):
    assert first(tried(**more)).startswith(f"PASS  fits the training: {held} against it; ")


OPEN = [
    ({"judged": ["CK304", "CK309"], "pairs": [{"optimizer": 0, "class": "SGD", "file": 1, "named": False}]},
     "groups and order not judged, as the file has no names"),
    ({"judged": ["CK301", "CK304", "CK309"]}, "order not judged"),
    ({"parameters_not_loaded": ["a"]}, "1 of 4 parameters is not in the file"),
    ({"pairs": [{"optimizer": 0, "class": "SGD", "file": None, "named": False}]},
     "the file has nothing for the optimizer"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "said"), OPEN)
def test_the_headline_says_what_was_not_held_against_the_training(more, said):
    assert said in first(tried(**more)).split("; ")
    assert said not in first(FIT)


@pytest.mark.parametrize("more", [{"judged": []}, {"loaded": False, "judged": ["CK309"]}])
def test_where_nothing_was_held_against_the_training_nothing_fits_it(more):
    assert first(tried(**more)) == "PASS  nothing was held against the training; the files are whole"


def test_a_load_that_raised_does_not_fit_though_its_finding_was_ignored():
    assert first(tried(loaded=False, raised="KeyError: 'ema'")) == "PASS  the load raised; the files are whole"


def test_what_the_load_raised_and_did_not_load_is_said_once():
    raised, lost = "KeyError: 'ema'", ["base.weight"]
    both = tried(FLOODED, raised=raised, parameters_not_loaded=lost)
    assert "the target's own load raised (CK601)\n" in render(both, Page())
    assert f"the target's own load raised {raised}\n" in render(replace(both, findings=()), Page())
    error = Finding("CK309", "weights-not-loaded", Severity.ERROR, "base.weight gets no weights", Place())
    assert "parameters is not in the file" not in render(replace(tried(parameters_not_loaded=lost), findings=(error,)),
                                                         Page(width=300)).partition("Target")[2]  # fmt: skip
    assert "1 of 4 parameters is not in the file: base.weight" in render(tried(parameters_not_loaded=lost), Page(300))


def test_an_error_that_does_not_fail_the_check_lets_nothing_fit():
    error = Finding("CK309", "weights-not-loaded", Severity.ERROR, "1 of 4 parameters gets no weights", Place())
    assert first(replace(FIT, findings=(error,))) == "PASS  1 error, which does not fail the check; the files are whole"


def test_a_resume_of_which_not_all_could_be_judged_lacks_nothing_as_far_as_could_be_judged():
    part = replace(FIT, parts={key: value for key, value in FIT.parts.items() if key != "target"})
    assert first(part).startswith("PASS  nothing is missing for a resume; ")
    part = replace(part, not_judged=(NotJudged("CK204", "it holds no weights: it is a part of a checkpoint"),))
    assert first(part).startswith("PASS  nothing is missing for a resume, as far as could be judged; ")


def test_what_a_pickle_names_takes_nothing_from_the_files_where_it_is_for_information_only():
    info = Finding("CK104", "unsafe-pickle", Severity.INFO, "it names numpy.dtype", Place())
    assert first(replace(RELEASED, findings=(info,))).endswith("; the files are whole")
    warned = replace(RELEASED, findings=(replace(info, severity=Severity.WARNING),))
    assert first(warned) == "PASS  1 warning, which does not fail the check"


ASKED = [
    (["CK5", "CK102"], [], "nothing found by the rules asked for (CK5, CK102)"),
    (["CK"], ["CK207"], "nothing is missing for a resume, CK207 left aside"),
    (["CK"], [], "nothing is missing for a resume"),
]


@pytest.mark.parametrize(("select", "ignore", "said"), ASKED)
def test_where_some_rules_were_not_asked_no_more_is_said(select, ignore, said):
    parts = {key: value for key, value in FIT.parts.items() if key != "target"}
    one = replace(FIT, parts=parts | {"asked": {"select": select, "ignore": ignore}})
    assert first(one) == f"PASS  {said}; the files are whole"


def test_a_fail_names_the_weightiest_finding_and_the_other_codes_that_weigh_as_much():
    assert first(FLOODED) == "FAIL  optimizer state missing for parameter (CK202), also CK601"
    assert first(INCOMPLETE) == "FAIL  optimizer state partial (CK203)", "its warnings are not named"


def test_what_could_not_be_judged_is_not_told_by_a_finding_beside_it():
    said = replace(WARNED, verdict=Verdict.INCONCLUSIVE)
    assert first(said) == "INCONCLUSIVE  no rule could judge the checkpoint"


def test_three_findings_of_a_code_and_severity_are_shown_and_their_fix_once():
    text = render(FLOODED, Page(width=300))
    assert text.count("CK202 error: ") == 3
    assert "(and 27 more like these; -v shows all)" in text
    assert text.count("to do: look for what drops") == 1
    assert text.count("CK202 info: ") == 1
    assert render(FLOODED, Page(width=300, detail=Detail.ALL)).count("CK202 error: ") == 30


def test_findings_of_a_code_with_unlike_fixes_keep_each_its_own():
    found = [replace(one, fix=fix) for one, fix in zip(FLOODED.findings[:3], ("a", "a", "b"), strict=True)]
    lines = render(replace(FLOODED, findings=tuple(found)), Page(width=300)).splitlines()
    assert [line.split()[-1] for line in lines if "to do" in line] == ["a", "b"]


def test_a_message_does_not_say_again_which_checkpoint_it_is():
    one = Finding("CK101", "unreadable-file", Severity.ERROR, "run/last.pt: cut short", Place())
    assert "CK101 error: cut short\n" in render(replace(INCOMPLETE, findings=(one,)), Page())


def table(rows: list[dict[str, Any]], older: int = 0, detail: Detail = Detail.NORMAL, width: int = 80) -> list[str]:
    parts = FIT.parts | {"series": rows, "older_not_read": older}
    text = render(replace(FIT, parts=parts), Page(width=width, detail=detail))
    return text.partition("\nCheckpoint ")[2].partition("\n\n")[0].splitlines()


def test_the_newest_checkpoints_of_a_run_are_shown_unless_all_are_wanted():
    assert len(table(SERIES, width=120)) == 1 + 8 + 1
    assert table(SERIES)[-1] == "and 3 older ones (-v shows all)"
    assert len(table(SERIES, detail=Detail.ALL, width=120)) == 1 + len(SERIES)
    assert table(SERIES[-2:], older=1)[-1] == "and 1 older one that was not read"
    last = table(SERIES, older=30, width=120)[-1]
    assert last == "and 3 older ones (-v shows all) and 30 older ones that were not read"


def test_a_column_in_which_nothing_stands_is_left_out():
    rows = [member(1, counters={}), member(2, counters={"updates": 2.5}, checked=True)]
    head, _, last = table(rows)
    assert head.split() == ["Step", "Updates", "Tensors", "Size", "Note"]
    assert last.split() == ["epoch_2.pt", "20", "2.5", "5", "3.2", "GiB", "checked"]


def test_the_columns_of_a_run_stand_under_their_heads_at_eighty_columns():
    head, *rows = [f"Checkpoint {line}" if place == 0 else line for place, line in enumerate(table(SERIES[:3]))]
    for title in ("Step", "Updates", "Schedule", "Tensors", "Size"):
        end = head.index(title) + len(title)
        assert all(line[end - 1] != " " and line[end] == " " for line in rows if len(line) > end), title


@pytest.mark.parametrize("part", [None, "x", [], {}, {"pairs": None, "judged": "CK309", "left_out": 3}])
def test_absent_or_empty_parts_are_tolerated(part):
    assert render(replace(FIT, parts=FIT.parts | {"target": part, "series": part}), Page()).startswith("PASS")

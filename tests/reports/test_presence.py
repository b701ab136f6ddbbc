"""Gradient presence in a text: a letter a step, where everything is told; no part of a result is dumped as it is."""

from dataclasses import replace

from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render
from tests.reports.results import BROKEN

LETTERS = {"-": "none", "0": "zero", "+": "nonzero", " ": "not recorded", "f": "frozen"}


def row(parameters, left, right=None, frozen=None, contract=None):
    return {"parameters": parameters, "left": left, "right": right, "frozen": frozen, "contract": contract}


def shown(rows, every=1, detail=Detail.ALL, steps=range(1, 5), **parts):
    run = {"run": "resumed@2", "steps": list(steps), "every": every, "letters": LETTERS, "rows": rows}
    lines = render(replace(BROKEN, parts=BROKEN.parts | {"gradients": [run]} | parts), Page(detail=detail)).splitlines()
    begin = next((place for place, line in enumerate(lines) if line.startswith("Gradients")), None)
    if begin is None:
        return []
    end = next(place for place in range(begin + 1, len(lines)) if not lines[place].startswith("   "))
    return [" ".join(line.split()) for line in lines[begin:end]]


def test_parameters_that_share_it_are_told_once_with_the_other_side_where_it_differs():
    rows = [row(["a", "b", "c", "d"], "++++"), row(["e"], "++++", "++-+"), row(["f"], "----", None, "ffff", "hold")]
    assert shown(rows) == [
        "Gradients a letter a step, from step 1 to 4: - none, + nonzero, f frozen",
        "a, b, c and 1 more: ++++",
        "e: left ++++; right ++-+",
        "f: left ----; frozen ffff (hold)",
    ]


def test_many_steps_and_rows_are_cut_and_said_to_be():
    told = shown([row([f"p{place}"], "+" * 200) for place in range(14)], every=5, steps=range(1, 201))
    assert told[0] == "Gradients a letter every 5 steps, from step 1 to 60: + nonzero"
    assert told[1] == f"p0: {'+' * 60}"
    assert told[-1] == "and 2 rows more (in the page and the JSON)"
    assert len(told) == 14


def test_it_is_told_only_where_everything_is():
    assert shown([row(["a"], "+")], detail=Detail.NORMAL) == []
    assert shown([]) == []


def test_parts_for_the_page_and_nothings_are_no_rows_of_a_text():
    parts = {"stages": [{"run": "r"}], "membership": [{"run": "r"}], "trajectory_left_out": 0, "resume_at": [3, 7]}
    text = render(replace(BROKEN, parts=BROKEN.parts | parts), Page(detail=Detail.ALL))
    labels = {line[:13].strip() for line in text.splitlines() if line[:1].strip()}
    assert not labels & {"Stages", "Membership", "Trajectory left out"}
    assert "Trajectory left out" not in text
    assert "Resume at    3, 7\n" in text

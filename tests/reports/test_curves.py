"""How the divergence is told: a few tensors at a few steps, aligned; columns of the JSON on a line each."""

import json
from dataclasses import replace

import pytest

from ckptcheck.reports import json as json_report
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render
from tests.reports.results import BROKEN, CLEAN

STEPS = list(range(11, 31))


def tensor(section, parameter, key, values, steps=None):
    name = {"section": section, "parameter": parameter, "key": key, "optimizer": None, "part": 0, "numel": 4}
    numbers = {"max_abs": values, "rel_l2": values, "max_ulp": [None] * len(values), "differing": [4] * len(values)}
    return name | {"first": 11, "differs_at": 20, "load": None, "steps": steps, "not_measured": []} | numbers


def growing(by):
    return [by * place for place in range(1, 21)]


TENSORS = [
    tensor("param", "a", None, growing(0.001)),
    tensor("param", "much.longer.name", None, [0.0, 0.5, 0.25, *[None] * 17]),
    tensor("param", "b", None, [0.1, 2.5, 0.75], [11, 12, 30]),
    tensor("param", "c", None, growing(1e-9)),
    tensor("param", "zero.on.the.left", None, [None] * 20),
    tensor("state", "a", "exp_avg", [1.0] * 19 + [float("inf")]),
    tensor("state", "b", "exp_avg", [1.0] * 20),
    tensor("grad", "a", None, growing(3)),
    tensor("buffer", None, "running_mean", growing(0.5)),
]
RUN = {"run": "resumed@10", "step": 10, "steps": STEPS, "tensors": TENSORS, "left_out": None, "reason": None}
FULL = replace(BROKEN, parts=BROKEN.parts | {"divergence": [RUN]})


def drift(result, page) -> list[str]:
    lines = render(result, page).splitlines()
    begin = next(place for place, line in enumerate(lines) if line.startswith("Drift"))
    end = next(place for place in range(begin + 1, len(lines)) if not lines[place].startswith("   "))
    return lines[begin:end]


def test_the_worst_tensors_are_shown_at_a_few_steps_in_columns():
    assert drift(FULL, Page(width=90)) == [
        "Drift        rel L2 after step       11     12    20    30",
        "             b                      0.1    2.5     -  0.75",
        "             much.longer.name         0    0.5     -     -",
        "             a                    0.001  0.002  0.01  0.02",
        "             a / exp_avg              1      1     1   inf",
        "             buffer running_mean    0.5      1     5    10",
    ]


def test_a_narrow_page_has_fewer_steps_and_the_narrowest_has_words():
    assert drift(FULL, Page(width=57)) == [
        "Drift        rel L2 after step       11    20    30",
        "             b                      0.1     -  0.75",
        "             much.longer.name         0     -     -",
        "             a                    0.001  0.01  0.02",
        "             a / exp_avg              1     1   inf",
        "             buffer running_mean    0.5     5    10",
    ]
    text = render(FULL, Page(width=36))
    assert "\n    b: 11: 0.1, 30: 0.75\n" in text
    assert max(map(len, text.splitlines())) <= 36


def test_all_of_it_names_more_tensors_and_what_was_left_out():
    left_out = {"tensors": 2, "numbers": 30, "reason": "2 of them are told at 3 steps"}
    result = replace(FULL, parts=FULL.parts | {"divergence": [RUN | {"left_out": left_out}]})
    shown = drift(result, Page(width=90, detail=Detail.ALL))
    assert [line.split()[0] for line in shown[1:]] == [
        "b",
        "much.longer.name",
        "a",
        "c",
        "a",
        "b",
        "gradient",
        "buffer",
        "2",
    ]
    assert "told at 3 steps" in shown[-1]
    assert "told at 3 steps" not in render(result, Page())


def test_a_name_that_steers_a_terminal_keeps_the_columns():
    hostile = RUN | {"tensors": [tensor("param", "\x1b[31mred", None, growing(1)), TENSORS[0]]}
    lines = drift(replace(FULL, parts=FULL.parts | {"divergence": [hostile]}), Page(width=90))
    assert "\x1b" not in "".join(lines)
    assert len({len(line) for line in lines}) == 1


def test_a_pass_shows_none_and_a_result_without_the_part_the_old_line():
    assert "Drift" not in render(CLEAN, Page())
    assert "Drift        largest rel L2 of a parameter" in render(BROKEN, Page(width=120))


@pytest.mark.parametrize("part", [
    None, "x", [None], [{}], [{"tensors": 3, "steps": [1]}], [{"tensors": [None, {}], "steps": [1]}],
    [{"tensors": [{"section": "param"}], "steps": [1]}],
    [{"tensors": [{"section": "param", "rel_l2": [1.0]}], "steps": [11, 12]}],
    [RUN | {"steps": "x"}], [RUN | {"tensors": [tensor("param", "a", None, ["x", {}])]}],
])  # fmt: skip
def test_a_part_of_another_shape_is_tolerated(part):
    assert render(replace(BROKEN, parts=BROKEN.parts | {"divergence": part}), Page()).startswith("FAIL")


def test_columns_are_lines_of_json_and_the_document_is_what_it_was():
    text = json_report.render(FULL, Page())
    assert json.loads(text) == json.loads(json.dumps(json_report.document(FULL)))
    assert '"max_abs": [0.1, 2.5, 0.75]' in text
    assert '"rel_l2": [1.0, 1.0' in text
    assert json.loads(text)["divergence"][0]["tensors"][5]["rel_l2"][-1] == "inf"

"""What a person reads of a probe."""

import re
from pathlib import Path

import pytest

from ckptcheck.finding import Result, Verdict
from ckptcheck.lab.contract import Contracts, Transition
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def _text(result, **page):
    return render(result, Page(**{"width": 100, **page}))


def test_one_optimizer_is_a_row_for_each_variant_and_a_line_for_each_scenario(probe):
    text = _text(probe("SGD"))
    assert text.startswith(
        "PASS  SGD: a gradient that is none moves nothing, at the first step or later; zeros move the"
    )
    found = (re.match(r"(SGD[a-z, ]*?) +((?:rests|value|state|both)  .*)", line) for line in text.splitlines())
    rows = {one[1]: one[2].split() for one in found if one}
    assert rows["SGD"] == ["rests", "rests", "rests", "rests"]
    assert rows["SGD, momentum"] == ["rests", "both", "state", "state", "momentum_buffer"]
    assert rows["SGD, decay"] == ["rests", "value", "rests", "value"]
    assert "SGD, maximize" not in rows  # it moves what the defaults move
    assert "frozen-stale, gradient nonzero: value moves" in text
    assert "foreach: the same bits, the same contract" in text
    assert "Made with" not in text


def test_all_there_is_names_implementations_and_versions(probe):
    text = _text(probe("SGD"), detail=Detail.ALL)
    assert "SGD, maximize [fused]" in text
    assert "Made with" in text
    assert "torch 2." in text


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_pages_are_kept(probe, width):
    text = _text(probe("Rprop"), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "zero" in text


def test_a_broken_freeze_is_told_with_what_breaks_it_and_what_would_keep_it(probe):
    name = str(FIXTURES / "frozen_backbone_faults.py") + ":build_stale_gradient"
    lines = _text(probe(name, freeze={"backbone.*": "hold"})).splitlines()
    assert lines[0] == "FAIL  the contract hold on backbone.* is broken at step 1"
    text = "\n".join(lines)
    assert "Frozen       backbone.* = hold: broken at step 1 in backbone.0.weight: its gradient is left from" in text
    assert (
        "Keeps it     requires_grad=False, gradients none\n             out of the param groups, its state dropped\n"
        in text
    )
    assert "learning rate 0" not in text


def test_a_freeze_that_is_kept_is_said_to_be(probe):
    text = _text(probe(str(FIXTURES / "frozen_backbone.py"), freeze={"backbone.*": "hold"}))
    assert "Frozen       backbone.* = hold: kept over 20 real steps" in text


def test_transitions_that_do_not_hold_are_the_headline():
    rows = Contracts(exact=(Transition("decay", "99/100", "98/100", passed=False), Transition("rest", "1", "1", True)))
    result = Result("probe", Verdict.FAIL, parts={"exact": rows.to_json()["exact"], "contract": []})
    text = _text(result)
    assert text.startswith("FAIL  1 exact transition does not hold\n")
    assert "does not hold" in text.splitlines()[3]
    assert _text(result, detail=Detail.VERDICT).count("\n") == 1


def test_names_from_outside_are_escaped(probe, tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(
        "import torch\nclass Own(torch.optim.SGD):\n    def step(self, closure=None): raise ValueError('a\\x1b[31mb')\n"
    )
    text = _text(probe(f"{path}:Own"))
    assert "\x1b" not in text
    assert "raises" in text

import json

import pytest

from ckptcheck import __version__
from ckptcheck.finding import Cause, Place, Result, Verdict
from ckptcheck.reports.json import document, plain, render, render_many
from ckptcheck.reports.page import Page
from tests.reports.results import BROKEN, CLEAN, HOSTILE, REFUSED

FRAME = ["schema", "tool", "command", "verdict", "compared", "first_divergence", "cause", "findings", "not_judged",
         "environment"]  # fmt: skip


def test_the_frame_comes_first_and_in_the_order_of_the_contract():
    assert list(document(BROKEN))[: len(FRAME)] == FRAME
    assert document(BROKEN)["schema"] == 1
    assert document(BROKEN)["tool"] == {"name": "ckptcheck", "version": __version__}


def test_the_parts_of_a_command_stand_beside_the_frame():
    assert list(document(BROKEN))[len(FRAME) :] == ["target", "policy", "trajectory", "magnitudes", "crossed", "runs"]


def test_a_part_never_overwrites_the_frame():
    assert document(Result("verify", Verdict.FAIL, parts={"verdict": "pass"}))["verdict"] == "fail"


def test_where_holds_only_the_keys_that_apply():
    assert document(BROKEN)["findings"][1]["where"] == {"path": "work/checkpoint.pt"}


def test_a_first_divergence_always_has_the_same_keys():
    result = Result(
        "verify", Verdict.FAIL, first_divergence=Place(step=10, stage="rng"), cause=Cause("CK603", "likely")
    )
    assert document(result)["first_divergence"] == {
        "step": 10, "stage": "rng", "parameter": None, "key": None, "optimizer": None, "group": None, "rank": None,
    }  # fmt: skip


def test_what_does_not_apply_is_null():
    assert document(CLEAN)["first_divergence"] is None
    assert document(CLEAN)["cause"] is None


@pytest.mark.parametrize(("number", "written"), [(float("nan"), "nan"), (float("inf"), "inf"), (-float("inf"), "-inf")])
def test_numbers_that_are_not_finite_are_strings(number, written):
    assert plain({"a": [number, (number,)]}) == {"a": [written, [written]]}


def test_what_json_has_no_form_for_is_a_bug_not_a_string():
    with pytest.raises(TypeError, match="object"):
        plain({"a": object()})


def test_only_an_error_has_an_error():
    assert document(REFUSED)["error"] == "no file train.py; name one that exists"
    assert "error" not in document(BROKEN)


def test_the_document_is_printable_ascii_and_keeps_hostile_names_whole():
    text = render(HOSTILE, Page())
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert json.loads(text)["first_divergence"]["parameter"] == HOSTILE.first_divergence.parameter


def test_several_results_are_one_list():
    assert [one["verdict"] for one in json.loads(render_many((CLEAN, BROKEN), Page()))] == ["pass", "fail"]

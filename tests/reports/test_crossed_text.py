"""What a text says of the situations that were crossed, and of codes that were demanded and not judged."""

import pytest

from ckptcheck.finding import Cause, Compared, NotJudged, Place, Result, Verdict
from ckptcheck.reports.page import Detail, Page
from ckptcheck.reports.text import render

CROSSED = {
    "covered": ["a resume in a fresh process"],
    "not_covered": ["a second save", "an overflow", "the end of an epoch", "a second resume in a row"],
    "does_not_apply": ["the end of the warm-up"],
    "situations": [
        {"name": "a second save", "covered": "no", "to_cover": "--resume-at auto"},
        {"name": "an overflow", "covered": "no", "to_cover": "--resume-at 2"},
        {"name": "the end of an epoch", "covered": "no", "to_cover": ""},
        {"name": "a second resume in a row", "covered": "no", "to_cover": "--resume-at auto"},
    ],
    "points": [{"step": 2, "reasons": ["right before an overflow"]}, {"step": 9, "reasons": []}],
}


def verified(verdict: Verdict = Verdict.PASS, **more) -> Result:
    parts = {"crossed": CROSSED} | more.pop("parts", {})
    return Result("verify", verdict, Compared(4, 2, 2, 64), parts=parts, **more)


def test_what_was_not_crossed_stands_with_the_option_that_would_cross_it():
    rows = render(verified(), Page(width=100)).splitlines()
    start = rows.index("Resumed      after step 2: right before an overflow")
    assert rows[start : start + 6] == [
        "Resumed      after step 2: right before an overflow",
        "             after step 9",
        "Crossed      a resume in a fresh process",
        "Not crossed  a second save, a second resume in a row (--resume-at auto)",
        "             an overflow (--resume-at 2)",
        "             the end of an epoch",
    ]


def test_what_does_not_apply_is_not_advice():
    assert "warm-up" not in render(verified(), Page())


def test_the_verdict_alone_says_nothing_of_it():
    assert render(verified(), Page(detail=Detail.VERDICT)).count("\n") == 1


ODD = [{"points": "x"}, {"points": [1, {}]}, {"situations": {}}, {"situations": [{"name": 1}, None]}, {"covered": None}]


@pytest.mark.parametrize("parts", ODD)
def test_a_part_of_another_shape_breaks_no_text(parts):
    assert render(verified(parts={"crossed": CROSSED | parts}), Page()).startswith("PASS")


def test_a_demand_that_was_not_met_is_the_headline_with_its_reason():
    unmet = (NotJudged("CK603", "numpy differs between equal runs"), NotJudged("CK609", "--quick"))
    result = verified(Verdict.FAIL, not_judged=unmet, parts={"required": ["CK603", "CK609"]})
    text = render(result, Page(width=100))
    assert text.startswith("FAIL  demanded and not judged: CK603, and 1 more: numpy differs between equal runs\n")
    assert "Demanded     CK603, CK609 could not be judged: see below" in text
    noisy = verified(Verdict.FAIL, not_judged=unmet, parts={"required": ["CK609"]}, cause=Cause("CK611", "certain"))
    assert render(noisy, Page()).startswith("FAIL  demanded and not judged: CK609: --quick")


def test_a_divergence_is_the_headline_whatever_was_demanded():
    result = verified(
        Verdict.FAIL, parts={"required": ["CK609"]}, cause=Cause("CK202", "certain"),
        first_divergence=Place(step=9, stage="load"),
    )  # fmt: skip
    assert render(result, Page()).startswith("FAIL  CK202, first at step 9")

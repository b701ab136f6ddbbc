"""Findings as a project weighs and accepts them: what an acceptance covers, until when, and what is told of it."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from ckptcheck.config import Acceptance
from ckptcheck.errors import UsageError
from ckptcheck.finding import Accepted, Finding, Place, Severity, gates
from ckptcheck.verdict.accepting import asked_and_judged, settle
from ckptcheck.verdict.decisions import NONE, Decisions, decisions

TODAY = date(2027, 1, 31)
YESTERDAY, TOMORROW = date(2027, 1, 30), date(2027, 2, 1)
EVERYTHING = asked_and_judged(("CK",), (), ())


def finding(code: str = "CK501", parameter: str | None = "head.w", severity: str = "error", **evidence) -> Finding:
    return Finding(code, "non-finite", Severity(severity), "it is", Place(parameter=parameter), evidence)


def settled(found: Finding | list[Finding], *accept: Acceptance, judged=EVERYTHING, **more):
    decided = Decisions(accept=accept, today=TODAY, **more)
    return settle(found if isinstance(found, list) else [found], decided, "check", judged=judged)


FIRST = finding(tensors=["head.w", "head.b"])
STATE = finding(tensors=["head.w.exp_avg", "head.w.exp_avg_sq"])
MANY = finding(parameters=[f"head.{place}" for place in range(200)])
SWAPPED = finding("CK302", permutation={"head.w": "head.b", "body.w": "head.w"})
COVERED = [
    ("of the code", finding(), {}, True),
    ("of another code", finding(), {"code": "CK502"}, False),
    ("in a parameter that the glob meets", finding(), {"parameter": "head.*"}, True),
    ("in one that it does not", finding(), {"parameter": "body.*"}, False),
    ("in none", finding(parameter=None), {"parameter": "*"}, False),
    ("in none, and any will do", finding(parameter=None), {}, True),
    ("in several that it meets", FIRST, {"parameter": "head.*"}, True),
    ("in several of which it meets the first", FIRST, {"parameter": "head.w"}, False),
    ("in the state of one", STATE, {"parameter": "head.w"}, True),
    ("in more than are listed", MANY, {"parameter": "head.*"}, False),
    ("between parameters that it does not all meet", SWAPPED, {"code": "CK302", "parameter": "head.*"}, False),
    ("between parameters that it all meets", SWAPPED, {"code": "CK302", "parameter": "*.w"}, True),
    ("until tomorrow", finding(), {"until": TOMORROW}, True),
    ("on its last day", finding(), {"until": TODAY}, True),
    ("on the day after", finding(), {"until": YESTERDAY}, False),
]


@pytest.mark.parametrize(("found", "written", "accepts"), [one[1:] for one in COVERED], ids=[one[0] for one in COVERED])
def test_an_acceptance_covers_a_finding(found, written, accepts):
    (told,) = settled(found, Acceptance(**{"code": "CK501", "reason": "known", "source": "here"} | written)).findings
    until = written["until"].isoformat() if "until" in written else None
    assert told == replace(found, accepted=Accepted("known", until, "here") if accepts else None)
    assert gates(told, "error") is not accepts


def test_of_two_acceptances_the_first_that_is_in_force_tells_why():
    over = Acceptance("CK501", "over", until=YESTERDAY)
    here, there = Acceptance("CK501", "here"), Acceptance("CK501", "there")
    (told,) = settled(finding(), over, here, there).findings
    assert told.accepted.reason == "here"


def row(code: str, parameter: str | None = None, until: str | None = None, **more) -> dict:
    return {"code": code, "parameter": parameter, "reason": "known", "until": until, "source": "accept", **more}


def test_what_met_nothing_and_what_is_over_is_told():
    accept = [
        Acceptance("CK501", "known"),
        Acceptance("CK402", "known", "a.*", TODAY),
        Acceptance("CK501", "known", None, YESTERDAY),
        Acceptance("CK502", "known", None, YESTERDAY),
        Acceptance("CK401", "known", "head.*"),
    ]
    partly = finding("CK401", parameters=["head.w", "body.w"])
    told = settled([finding(), finding(parameter="b"), partly], *accept).parts["acceptances"]
    assert told == {
        "unused": [
            row("CK402", "a.*", "2027-01-31", why=None),
            row("CK401", "head.*", why="the finding is about body.w too"),
        ],
        "expired": [row("CK501", None, "2027-01-30", findings=2), row("CK502", None, "2027-01-30", findings=0)],
    }


def test_where_nothing_was_decided_nothing_is_told():
    assert settle([finding()], NONE, "check", judged=EVERYTHING) == settled(finding())
    assert settled(finding()).parts == {}
    assert settled(finding(), severity={"CK5": Severity.INFO}).parts == {}


WEIGHED = [
    ({"CK501": "info"}, "info"),
    ({"CK": "warning"}, "warning"),
    ({"CK5": "info", "CK501": "warning", "CK50": "error"}, "warning"),
    ({"CK502": "info", "CK4": "info"}, "error"),
    ({}, "error"),
]


@pytest.mark.parametrize(("severity", "told"), WEIGHED)
def test_a_finding_weighs_what_the_longest_beginning_of_its_code_says(severity, told):
    chosen = {code: Severity(weight) for code, weight in severity.items()}
    assert settled(finding(), severity=chosen).findings[0].severity == told


@pytest.mark.parametrize(("own", "chosen", "told"), [
    ("warning", "error", "warning"), ("warning", "info", "info"), ("error", "error", "error"),
])  # fmt: skip
def test_what_has_no_effect_can_weigh_less_and_never_more(own, chosen, told):
    harmless = finding(severity=own, without_effect=True)
    assert settled(harmless, severity={"CK501": Severity(chosen)}).findings[0].severity == told
    assert settled(finding(severity=own), severity={"CK501": Severity(chosen)}).findings[0].severity == chosen


def asked(**changed):
    return decisions("check", **{"severity": {}, "accept": ()} | changed)


REFUSED = [
    ({"accept": [Acceptance("CK299", "x", source="f, accept[0]")]},
     r"^f, accept\[0\]: no rule has the code CK299; did you mean CK2\d\d\?$"),
    ({"accept": [Acceptance("CK5", "x")]}, "no rule has the code CK5"),
    ({"accept": [Acceptance("CK501", " ", source="here")]}, "^here: CK501 is accepted without a reason: say why$"),
    ({"severity": {"CK299": "info"}}, r"^severity CK299: no rule has the code CK299; did you mean"),
    ({"severity": {"CK501": "fatal"}}, "^severity CK501: 'fatal' is none: use error, warning, info$"),
    ({"fail_on": "info"}, "^--fail-on 'info' is unknown: use error, warning, never$"),
    ({"baseline": Path("absent.json")}, "^--baseline absent.json: there is no such file$"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), REFUSED)
def test_a_decision_that_cannot_be_is_refused(changed, said):
    with pytest.raises(UsageError, match=said):
        asked(**changed)


def test_decisions_are_held_against_the_day_on_which_they_are_made():
    one = Acceptance("CK501", "known", until=date.max)
    before = date.today()
    decided = asked(accept=[one, replace(one, until=date.min)], severity={"CK2": "info"})
    assert before <= decided.today <= date.today()
    assert [decided.is_in_force(each) for each in decided.accept] == [True, False]
    assert decided.severity == {"CK2": Severity.INFO}

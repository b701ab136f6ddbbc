"""What an experiment comes to where the project accepts its findings: a divergence fails whatever it weighs."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from ckptcheck.config import Acceptance
from ckptcheck.experiment.noise import Noise
from ckptcheck.finding import Cause, Finding, Place, Result, Severity, Verdict
from ckptcheck.rules.runs.judge import Judgement
from ckptcheck.verdict.asking import Question
from ckptcheck.verdict.baseline import read_baseline
from ckptcheck.verdict.decisions import NONE, Decisions
from ckptcheck.verdict.grounds import settled
from ckptcheck.verdict.summary import Summary
from tests.verdict.test_summary import APART, BLIND, EXACT, NOISY, NOTHING, OPEN, QUIET, guilty

HIDDEN = replace(NOTHING, place=Place(step=4, stage="param", parameter="w"))
"""Of a run that differs, with the rule of its cause left out."""


def beside(code: str, severity: Severity, judged: Judgement = NOTHING) -> Judgement:
    """The judgement with a finding that is no cause."""
    more = Finding(code, "", severity, "it is so", Place(parameter="b"))
    return replace(judged, findings=(*judged.findings, more))


def weak(code: str, step: int) -> Judgement:
    """A cause that is a warning."""
    one = guilty(code, step)
    return replace(one, findings=(replace(one.findings[0], severity=Severity.WARNING),))


def result_of(cases: list, judged: list[Judgement], noise: Noise = QUIET, decided: Decisions = NONE, **asked) -> Result:
    question = Question(decided=decided, **asked)
    summary = Summary(cases, judged, [noise], question, [])
    return settled(summary.result({}, {}), decided, summary.grounds(), question.select, question.ignore)


A, B, WEAK = guilty("CK603", 3), guilty("CK202", 6), weak("CK306", 6)
WORSE, WARNED = beside("CK401", Severity.ERROR, A), beside("CK204", Severity.WARNING, A)
LONE = beside("CK401", Severity.ERROR)
UNMET = replace(guilty("CK602", 3), not_judged=OPEN.not_judged)
CASES = [
    ("the cause", [APART], [A], ["CK603"], {}, "pass"),
    ("nothing", [APART], [A], [], {}, "fail"),
    ("another code", [APART], [A], ["CK202"], {}, "fail"),
    ("the cause of one run of two", [APART, APART], [A, B], ["CK603"], {}, "fail"),
    ("the later cause of two", [APART, APART], [A, B], ["CK202"], {}, "fail"),
    ("both causes", [APART, APART], [A, B], ["CK603", "CK202"], {}, "pass"),
    ("one of two causes, of which the other is a warning", [APART, APART], [A, WEAK], ["CK603"], {}, "fail"),
    ("both, of which one is a warning", [APART, APART], [A, WEAK], ["CK603", "CK306"], {}, "pass"),
    ("the cause, and an error stands beside it", [APART], [WORSE], ["CK603"], {}, "fail"),
    ("the cause and the error beside it", [APART], [WORSE], ["CK603", "CK401"], {}, "pass"),
    ("the cause, and a warning stands beside it", [APART], [WARNED], ["CK603"], {}, "pass"),
    ("the cause, and warnings fail", [APART], [WARNED], ["CK603"], {"fail_on": "warning"},
     "fail"),
    ("the cause, and nothing fails", [APART], [WORSE], ["CK603"], {"fail_on": "never"},
     "fail"),
    ("the cause, where another code is left out and may be one", [APART, APART], [A, HIDDEN], ["CK603"],
     {"ignore": ("CK202",)}, "fail"),
    ("the cause, where a code is left out that is never one", [APART, APART], [A, HIDDEN], ["CK603"],
     {"ignore": ("CK207",)}, "pass"),
    ("the cause, and nothing was compared", [replace(APART, load=None)], [A], ["CK603"], {}, "inconclusive"),
    ("the cause, before noise", [APART], [A], ["CK603"], {"noise": NOISY}, "inconclusive"),
    ("nothing, and no run differs", [EXACT], [NOTHING], ["CK603"], {}, "pass"),
    ("an error beside runs that agree", [EXACT], [LONE], ["CK401"], {}, "pass"),
    ("no error beside runs that agree", [EXACT], [LONE], [], {}, "fail"),
    ("anything, and nothing was compared", [BLIND], [NOTHING], ["CK603"], {}, "inconclusive"),
    ("noise", [EXACT], [NOTHING], ["CK611"], {"noise": NOISY}, "inconclusive"),
    ("the cause, and a demand was not met", [APART], [UNMET], ["CK602"], {"require": ("CK603",)}, "fail"),
    ("the cause, and nothing was demanded", [APART], [UNMET], ["CK602"], {}, "pass"),
    ("nothing that a demand fails", [EXACT], [OPEN], ["CK603"], {"require": ("CK603",)}, "fail"),
]  # fmt: skip


@pytest.mark.parametrize(("cases", "judged", "accept", "more", "verdict"), [one[1:] for one in CASES],
                         ids=[one[0] for one in CASES])  # fmt: skip
def test_the_verdict_where_a_project_accepts(cases, judged, accept, more, verdict):
    decided = Decisions(
        accept=tuple(Acceptance(code, "known") for code in accept), fail_on=more.get("fail_on", "error")
    )  # fmt: skip
    asked = {name: value for name, value in more.items() if name in ("ignore", "require", "noise")}
    assert result_of(cases, judged, decided=decided, **asked).verdict == verdict


def test_what_was_found_stays_told_where_it_is_accepted():
    plain = result_of([APART], [A])
    told = result_of([APART], [A], decided=Decisions(accept=(Acceptance("CK603", "known", until=date.max),)))
    assert (told.cause, told.first_divergence) == (plain.cause, plain.first_divergence)
    assert told.cause == Cause("CK603", "certain")
    assert [replace(one, accepted=None) for one in told.findings] == list(plain.findings)
    assert told.findings[0].accepted.until == "9999-12-31"


def test_a_severity_gates_what_is_found_beside_runs_that_agree_and_never_a_divergence():
    judged = [beside("CK204", Severity.WARNING)]
    assert result_of([EXACT], judged).verdict is Verdict.PASS
    assert result_of([EXACT], judged, decided=Decisions({"CK2": Severity.ERROR})).verdict is Verdict.FAIL
    assert result_of([APART], [A], decided=Decisions({"CK603": Severity.INFO})).verdict is Verdict.FAIL


def test_a_baseline_accepts_a_divergence_at_any_later_step_and_no_other_one(tmp_path):
    path = tmp_path / "b.json"
    first = result_of([APART], [A], decided=Decisions(keep=path))
    assert first.verdict is Verdict.PASS
    decided = Decisions(baseline=read_baseline(path, "verify"))
    assert result_of([APART], [guilty("CK603", 8)], decided=decided).verdict is Verdict.PASS
    assert result_of([APART], [guilty("CK603", 3, "other")], decided=decided).verdict is Verdict.FAIL
    again = result_of([EXACT], [NOTHING], decided=decided)
    assert again.verdict is Verdict.PASS
    assert [one["code"] for one in again.parts["acceptances"]["baseline"]["gone"]] == ["CK603"]


def test_of_an_inconclusive_run_no_baseline_is_written(tmp_path):
    told = result_of([BLIND], [NOTHING], decided=Decisions(keep=tmp_path / "b.json"))
    assert told.verdict is Verdict.INCONCLUSIVE
    assert told.parts["acceptances"]["written"]["error"] == "nothing was written: the run is inconclusive"
    assert list(tmp_path.iterdir()) == []


def test_a_baseline_that_cannot_be_written_accepts_nothing():
    told = result_of([APART], [A], decided=Decisions(keep=Path("/absent/b.json")))
    assert told.verdict is Verdict.FAIL
    assert told.findings[0].accepted is None

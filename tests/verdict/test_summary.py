"""The verdict over all cases: what fails, what is open, whose cause is told, and how much was compared."""

from dataclasses import replace
from typing import Any

import pytest

from ckptcheck.comparison.states import compare_states
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.experiment.noise import Noise
from ckptcheck.finding import Cause, Compared, Finding, NotJudged, Place, Severity
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import Judgement
from ckptcheck.trace.items import Item, Sample
from ckptcheck.verdict.asking import Policy, Question
from ckptcheck.verdict.summary import Summary
from tests.comparison.written import state_of

QUIET = Noise({}, None, {}, None, repeated=True)
WEIGHT = Difference(4, Item("param", "w"), Sample(None, b"left"), Sample(None, b"right"))
NOISY = Noise({WEIGHT.item: 4}, WEIGHT, {}, None, repeated=True)
SEEN = TraceDiff((4, 5), Compared(steps=2, parameters=1, state_tensors=2, bytes=80), ())
SAME = compare_states(state_of(parameters={"w": 1}), state_of(parameters={"w": 1}))
EXACT = Case("resumed@3", 3, load=SAME, trajectory=SEEN)
APART = replace(EXACT, trajectory=replace(SEEN, differences=(WEIGHT,)))
BLIND = replace(EXACT, trajectory=TraceDiff((), Compared(), ()))
NOTHING = Judgement((), (), None, None)
OPEN = replace(NOTHING, not_judged=(NotJudged("CK603", "no generator was seen"),))


def guilty(code: str, step: int, parameter: str = "w") -> Judgement:
    place = Place(step=step, stage="load", parameter=parameter)
    return Judgement((Finding(code, "", Severity.ERROR, "it differs", place, {}),), (), Cause(code, "certain"), place)


VERDICTS: list[tuple[str, list[Case], list[Judgement], Noise, Question, str]] = [
    ("everything is equal", [EXACT], [NOTHING], QUIET, Question(), "pass"),
    ("a cause was found", [APART], [guilty("CK202", 3)], QUIET, Question(), "fail"),
    ("it differs and the code is ignored", [APART], [NOTHING], QUIET, Question(), "fail"),
    ("no step was compared", [BLIND], [NOTHING], QUIET, Question(), "inconclusive"),
    ("a load was not seen", [replace(EXACT, load=None)], [NOTHING], QUIET, Question(), "inconclusive"),
    ("equal runs differ", [EXACT], [NOTHING], NOISY, Question(), "inconclusive"),
    ("within the floor", [EXACT], [NOTHING], NOISY, Question(policy=Policy(state_exact=True)), "pass"),
    ("by chance", [EXACT], [NOTHING], replace(NOISY, chance="the repeat alone"),
     Question(policy=Policy(state_exact=True)), "inconclusive"),
    ("a code was not judged", [EXACT], [OPEN], QUIET, Question(), "pass"),
    ("a demanded code was not judged", [EXACT], [OPEN], QUIET, Question(require=("CK603",)), "fail"),
    ("another one was demanded", [EXACT], [OPEN], QUIET, Question(require=("CK604",)), "pass"),
]  # fmt: skip


@pytest.mark.parametrize(("cases", "judged", "noise", "question", "verdict"),
                         [one[1:] for one in VERDICTS], ids=[one[0] for one in VERDICTS])  # fmt: skip
def test_the_verdict_where(
    cases: list[Case], judged: list[Judgement], noise: Noise, question: Question, verdict: str
) -> None:
    result = Summary(cases, judged, [noise], question, []).result({}, {})
    assert result.verdict.value == verdict


def result_of(cases: list[Case], judged: list[Judgement]) -> Any:
    return Summary(cases, judged, [QUIET], Question(), []).result({}, {})


def test_the_cause_is_the_first_in_time_of_all_cases() -> None:
    late, early = guilty("CK202", 6), guilty("CK301", 3)
    for order in ([late, early], [early, late]):
        result = result_of([APART, APART], order)
        assert (result.cause.code, result.first_divergence.step) == ("CK301", 3)
        assert [one.code for one in result.findings] == ["CK301", "CK202"]


def test_each_parameter_is_told_once_however_many_cases_show_it() -> None:
    result = result_of([APART] * 3, [guilty("CK202", 3), guilty("CK202", 3), guilty("CK202", 3, "v")])
    assert [one.where.parameter for one in result.findings] == ["w", "v"]


def test_steps_and_bytes_of_all_cases_are_counted_and_tensors_once() -> None:
    one, two = result_of([EXACT], [NOTHING]).compared, result_of([EXACT, EXACT], [NOTHING]).compared
    assert (one.steps, one.parameters, one.state_tensors) == (2, 1, 2)
    assert (two.steps, two.parameters, two.state_tensors) == (4, 1, 2)
    assert two.bytes == 2 * one.bytes >= 160

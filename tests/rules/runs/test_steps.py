"""CK612 and CK615 over scripts: which steps were made again, left out, or lost to a signal."""

import pytest

from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.finding import Compared
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.course import Course, Interruption
from ckptcheck.rules.runs.judge import judge

SAME = TraceDiff((7, 8), Compared(2, 4, 8, 64), ())


def judged(**fields):
    return judge(Case("resumed", 6, trajectory=SAME, **fields))


COURSES = [
    # course, evidence of steps again and left out, a part of the message; None for what is as it should be
    (Course(6, 6, 6, 12), None, None, ""),
    (Course(6, 3, None, 12), None, None, ""),
    (Course(6, 3, 3, 12), None, None, ""),
    (Course(6, 6, None, 12, from_start=True), None, None, ""),
    (Course(6, 3, 6, 12), ["4", "5", "6"], [], "steps 4 to 6 were made again"),
    (Course(7, 5, 6, 12), ["6"], [], "step 6 was made again"),
    (Course(6, 7, None, 12), [], ["7"], "step 7 was left out"),
    (Course(6, 12, 6, 12), [], ["7", "8", "9", "10", "11", "12"], "steps 7 to 12 were left out"),
]


@pytest.mark.parametrize(("course", "again", "left_out", "said"), COURSES)
def test_a_run_that_goes_on_from_elsewhere_is_told_with_the_steps(course, again, left_out, said):
    judgement = judged(course=course)
    found = [one for one in judgement.findings if one.code == "CK612"]
    if again is None:
        assert (found, judgement.cause) == ([], None)
        return
    assert (found[0].evidence["repeated"], found[0].evidence["left_out"]) == (again, left_out)
    assert said in found[0].message
    assert judgement.cause.code == "CK612"
    assert "CK612" not in {one.code for one in judgement.not_judged}


def test_a_process_that_is_missing_is_told_by_its_rank():
    found = judged(course=Course(6, None, 6, 12, rank=1)).findings[0]
    assert (found.code, found.where.rank) == ("CK612", 1)
    assert "no process of rank 1" in found.message


LEFT = [
    (Interruption("SIGTERM", 7, 7, "left with exit code 0"), None, ""),
    (Interruption("SIGTERM", 7, 9, "left with exit code 0"), None, ""),
    (Interruption("SIGTERM", 7, None, "left with exit code 0"), None, ""),
    (Interruption("SIGTERM", 7, 6, "was killed by SIGTERM"), 1, "that of step 6: 1 step lost"),
    (Interruption("SIGUSR1", 7, 5, "left with exit code 3"), 2, "SIGUSR1 came after step 7 and the run left with exit"),
    (Interruption("SIGTERM", 7, 0, "was killed by SIGTERM"), 7, "there is no checkpoint: 7 steps lost"),
]


@pytest.mark.parametrize(("left", "lost", "said"), LEFT)
def test_what_a_signal_lost_is_told_in_steps(left, lost, said):
    judgement = judged(interruption=left)
    if lost is None:
        assert (judgement.findings, judgement.cause) == ((), None)
        return
    assert judgement.cause.code == "CK615"
    assert (judgement.place.step, judgement.place.stage) == (7, None)
    assert judgement.findings[0].evidence["steps_lost"] == lost
    assert said in judgement.findings[0].message


def test_a_signal_that_lost_steps_is_told_where_nothing_could_be_resumed():
    case = Case(
        "resumed", 7, interruption=Interruption("SIGTERM", 7, 0, "was killed"), course=Course(7, None, None, 12)
    )
    judgement = judge(case)
    assert judgement.cause.code == "CK615"
    assert {one.code for one in judgement.findings} == {"CK615", "CK612"}
    assert judge(case, ignore=["CK615"]).cause.code == "CK612"

"""Verify on commands from end to end: real scripts, real processes, one result."""

import sys
from pathlib import Path

import pytest

from ckptcheck import verbs
from ckptcheck.errors import UsageError
from ckptcheck.finding import Result, Verdict
from ckptcheck.reports.page import Page
from ckptcheck.reports.text import render

HERE = Path(__file__).parent
PLAIN = f"{sys.executable} {HERE / 'plain.py'} {{dir}}"
FORKED = f"{sys.executable} {HERE / 'several.py'} {{dir}}"
LAUNCHED = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2 {HERE / 'several.py'} {{dir}}"


def codes(result: Result) -> set[str]:
    return {one.code for one in result.findings}


def reasons(result: Result) -> dict[str, str]:
    return {one.code: one.reason for one in result.not_judged}


def test_a_clean_resume_of_a_script_passes_and_says_what_was_done():
    result = verbs.verify(run=PLAIN, resume=f"{PLAIN} {{ckpt}}", resume_at=[6], env={"CKPTCHECK_TEST": "1"})
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert (result.compared.steps, result.compared.parameters) == (2, 4)
    assert reasons(result).keys() >= {"CK609", "CK613", "CK615"}
    assert "CK611" not in reasons(result)
    parts = result.parts
    assert (parts["run"], parts["checkpoint"], parts["resume_at"]) == (PLAIN, "6.pt", [6])
    assert [(one["rank"], one["step"], one["by"]) for one in parts["alignment"]] == [(0, 6, "content")]
    assert [(one["name"], one["status"], one["exit_code"], one["steps"]) for one in parts["runs"]] == [
        ("reference", "ended", 0, 8), ("repeat", "ended", 0, 8), ("resumed", "ended", 0, 2)
    ]  # fmt: skip
    text = render(result, Page(width=200))
    assert f"Run          {PLAIN}" in text
    assert "Resumed      after step 6 (6.pt): " in text
    assert [(one["path"], one["step"], one["tensors"], one["reason"]) for one in parts["saved_later"]] == [
        ("8.pt", 8, 0, None)
    ]
    assert "Saved later  8.pt, step 8: as in the reference" in text


def test_a_signal_that_no_checkpoint_follows_is_told_with_the_steps_lost():
    result = verbs.verify(run=PLAIN, resume=f"{PLAIN} {{ckpt}}", interrupt="TERM@5", quick=True)
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK615")
    told = next(one for one in result.findings if one.code == "CK615")
    assert told.evidence["signal"] == "SIGTERM"
    assert (told.evidence["newest_checkpoint"], told.evidence["steps_lost"]) == (3, 2)
    assert [one["name"] for one in result.parts["runs"]] == ["reference", "repeat", "interrupted", "resumed"]
    assert "CK611" not in reasons(result)  # something differed, so that a repeat was made
    assert result.parts["interrupt"] == "SIGTERM after step 5"


def verified_ranks(command: str, faulty: str = "") -> Result:
    resume = f"{command} {{dir}}/last.pt{faulty}"
    result = verbs.verify(run=command, resume=resume, quick=True, resume_at=[3], env={"OMP_NUM_THREADS": "1"})
    assert result.parts["ranks"] == 2
    return result


def test_a_clean_resume_of_two_ranks_under_torchrun_passes():
    result = verified_ranks(LAUNCHED)
    # Without a repeat nobody knows that nothing seeds the generators which nothing draws from.
    assert result.verdict is Verdict.PASS
    assert all(one.evidence["without_effect"] for one in result.findings)
    assert result.compared.steps == 6
    assert reasons(result)["CK611"] == "no repeat was made (--quick)"


def test_a_fault_on_one_rank_is_found_on_that_rank():
    result = verified_ranks(FORKED, faulty=" 1")
    assert (result.verdict, result.cause.code) == (Verdict.FAIL, "CK603")
    assert (result.first_divergence.rank, result.first_divergence.step) == (1, 3)
    errors = {(one.code, one.where.rank) for one in result.findings if one.severity == "error"}
    assert errors == {("CK603", 1)}
    assert result.parts["trajectory"][0]["rank"] == 1


REFUSED = [
    ({}, "nothing to verify"),
    ({"target": "t.py", "run": "a", "resume": "b"}, "exclude each other"),
    ({"run": "a"}, "--run needs --resume"),
    ({"resume": "a"}, "--resume needs --run"),
    ({"run": "a", "resume": "b", "device": "cuda"}, "--device is for a target"),
    ({"run": "a", "resume": "b", "resume_at": [1, 2]}, "given several times"),
    ({"run": "a", "resume": "b", "resume_at": ["auto", 2]}, "given several times"),
    ({"run": "a", "resume": "b", "resume_at": "half"}, "'half' is no step"),
    ({"run": "a", "resume": "b", "interrupt": "TERM@3", "resume_at": "auto"}, "--resume-at and --interrupt"),
    ({"run": "a", "resume": "b", "require": ["CK615"], "ignore": ["CK615"]}, "--ignore CK615 leaves it out"),
    ({"run": "a", "resume": "b", "steps": 4, "resume_at": [4]}, "outside 1..3"),
    ({"run": "a", "resume": "b", "steps": 1}, "leaves no step"),
    ({"run": "a", "resume": "b", "every": 0}, "records no step"),
    ({"run": "a", "resume": "b", "grads": False, "freeze": {"*": "hold"}}, "--freeze and --no-grads"),
    ({"run": "a", "resume": "b", "interrupt": "TERM@3", "resume_at": [3]}, "--resume-at and --interrupt"),
    ({"run": "a", "resume": "b", "interrupt": "TERM"}, "is not SIGNAL@STEP"),
    ({"run": "a", "resume": "b", "interrupt": "TERM@0"}, "is not SIGNAL@STEP"),
    ({"run": "a", "resume": "b", "interrupt": "BLAH@2"}, "there is no signal BLAH"),
    ({"run": "a", "resume": "b", "interrupt": "STOP@2"}, "does not end a process"),
    ({"run": "a", "resume": "b", "interrupt": "TERM@9", "steps": 9}, "no step follows"),
    ({"target": "t.py", "grads": False}, "--no-grads is for --run and --resume"),
    ({"target": "t.py", "interrupt": "TERM@2"}, "--interrupt is for --run and --resume"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "said"), REFUSED, ids=[one[1] for one in REFUSED])
def test_what_cannot_be_asked_is_refused_in_one_line(asked, said):
    with pytest.raises(UsageError, match=r"^[^\n]+$") as caught:
        verbs.verify(**asked)
    assert said in str(caught.value)

import json

import pytest

from ckptcheck.errors import CkptcheckError, RunFailedError, TargetError
from ckptcheck.finding import Finding, Place, Result, Severity, Verdict
from tests.cli.fakes import FakeVerbs, raising

WARNING = Finding("CK614", "environment-changed", Severity.WARNING, "threads differ", Place())
ERROR = Finding("CK401", "frozen-parameter-moved", Severity.ERROR, "backbone moved", Place())


def verdict(word: str, *findings: Finding) -> FakeVerbs:
    return FakeVerbs(Result("verify", Verdict(word), findings=findings))


CODES = [
    ("pass", (), "", 0),
    ("fail", (), "", 1),
    ("inconclusive", (), "", 3),
    ("inconclusive", (), "--on-inconclusive fail", 1),
    ("inconclusive", (), "--on-inconclusive pass", 0),
    ("fail", (), "--on-inconclusive pass", 1),
    ("fail", (), "--fail-on never", 1),
    ("pass", (WARNING,), "", 0),
    ("pass", (WARNING,), "--fail-on warning", 1),
    ("pass", (ERROR,), "", 1),
    ("pass", (ERROR,), "--fail-on never", 0),
    ("inconclusive", (ERROR,), "", 3),
]


@pytest.mark.parametrize(("word", "findings", "options", "code"), CODES)
def test_the_exit_code_follows_verdict_and_options(ckptcheck, word, findings, options, code):
    assert ckptcheck("verify", "t", *options.split(), verbs=verdict(word, *findings)).exit_code == code


def test_a_pass_that_a_finding_turns_into_a_fail_says_fail(ckptcheck):
    outcome = ckptcheck("verify", "t", "--fail-on", "warning", "--format", "json", verbs=verdict("pass", WARNING))
    assert json.loads(outcome.stdout)["verdict"] == "fail"


def test_a_refusal_is_one_line_and_exit_2(ckptcheck):
    outcome = ckptcheck("verify", "t", verbs=FakeVerbs(during=raising(TargetError("no file t; name one that exists"))))
    assert outcome.exit_code == 2
    assert outcome.stderr == "ckptcheck: error: no file t; name one that exists\n"
    assert outcome.stdout == ""


@pytest.mark.parametrize("option", [["--format", "json"], ["--format=json"]])
def test_a_refusal_as_json_is_a_result_on_stdout_and_the_line_on_stderr(ckptcheck, option):
    outcome = ckptcheck("compare", "a", "b", *option, verbs=FakeVerbs(during=raising(CkptcheckError("a is no trace"))))
    assert outcome.exit_code == 2
    assert outcome.stderr == "ckptcheck: error: a is no trace\n"
    result = json.loads(outcome.stdout)
    assert (result["schema"], result["command"], result["verdict"]) == (1, "compare", "error")
    assert result["error"] == "a is no trace"


def test_a_wrong_option_is_refused_as_json_too(ckptcheck):
    outcome = ckptcheck("verify", "t", "--steps", "0", "--format", "json", verbs=FakeVerbs())
    assert outcome.exit_code == 2
    assert json.loads(outcome.stdout)["verdict"] == "error"


def test_the_last_lines_of_a_failed_run_stand_indented_above_the_error(ckptcheck):
    error = RunFailedError("the reference run raised in step 7", "step 6\nValueError: \x1b[31mno\n")
    outcome = ckptcheck("verify", "t", verbs=FakeVerbs(during=raising(error)))
    assert outcome.stderr.splitlines() == [
        "    step 6",
        r"    ValueError: \x1b[31mno",
        "ckptcheck: error: the reference run raised in step 7",
    ]
    assert outcome.exit_code == 2


def test_names_in_an_error_do_not_steer_the_terminal(ckptcheck):
    outcome = ckptcheck("verify", "t", verbs=FakeVerbs(during=raising(TargetError("no \x1b]0;x\x07\n t"))))
    assert outcome.stderr == r"ckptcheck: error: no \x1b]0;x\x07\n t" + "\n"


def test_an_interrupt_is_exit_130(ckptcheck):
    outcome = ckptcheck("verify", "t", verbs=FakeVerbs(during=raising(KeyboardInterrupt())))
    assert outcome.exit_code == 130
    assert outcome.stderr == "ckptcheck: interrupted\n"
    assert outcome.stdout == ""


@pytest.mark.parametrize("bug", [ZeroDivisionError(), BrokenPipeError(), EOFError()])
def test_a_bug_of_ours_is_not_dressed_up(ckptcheck, bug):
    assert ckptcheck("verify", "t", verbs=FakeVerbs(during=raising(bug))).exception is bug


@pytest.mark.parametrize(("clean", "broken", "code"), [
    ("pass", "fail", 0), ("fail", "fail", 1), ("pass", "pass", 1), ("inconclusive", "fail", 1),
])  # fmt: skip
def test_the_demo_succeeds_when_one_passes_and_one_fails(ckptcheck, clean, broken, code):
    verbs = FakeVerbs(Result("verify", Verdict(clean)), broken=Result("verify", Verdict(broken)))
    assert ckptcheck("demo", verbs=verbs).exit_code == code

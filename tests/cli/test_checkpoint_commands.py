"""The options of `diff`, `check` and `inspect`, and what their exit codes mean."""

from dataclasses import replace
from pathlib import Path

import pytest

from ckptcheck.finding import Finding, Place, Result, Severity, Verdict
from tests.cli.fakes import FakeVerbs
from tests.cli.refusals import assert_is_refused
from tests.reports.checkpoint_results import DAMAGED, DIFFERENT, GATED, INSPECTED, MATCHING, NOTHING, WHOLE

DIFF_DEFAULTS = {
    "left": Path("a"), "right": Path("b"), "only": (), "without": (), "renames": (), "left_section": "",
    "right_section": "", "cast": "", "rtol": 0.0, "atol": 0.0, "tolerances": {}, "statistics": True, "gate": "content",
    "select": ("CK",), "ignore": (), "require": (), "freeze": {}, "fail_on": "error",
    "severity": {}, "accept": (), "baseline": None, "write_baseline": None,
}  # fmt: skip

CHECK_DEFAULTS = {
    "path": Path("c"), "target": None, "purpose": "auto", "freeze": {}, "select": ("CK",), "ignore": (), "require": (),
    "fail_on": "error", "severity": {}, "accept": (), "baseline": None, "write_baseline": None,
}  # fmt: skip

CHECK_OPTIONS = [
    ("", {}),
    ("--for resume", {"purpose": "resume"}),
    ("--for release", {"purpose": "release"}),
    ("--target train.py:build", {"target": "train.py:build"}),
    ("--freeze backbone.*=hold --freeze a=b=removed", {"freeze": {"backbone.*": "hold", "a=b": "removed"}}),
    ("--require CK205,CK2 --require CK501", {"require": ("CK205", "CK2", "CK501")}),
]

DIFF_OPTIONS = [
    ("--only optimizer/* --only *.bias", {"only": ("optimizer/*", "*.bias")}),
    ("--ignore rng --ignore CK104,CK105 --ignore CK1", {"without": ("rng",), "ignore": ("CK104", "CK105", "CK1")}),
    ("--ignore CKPT --ignore model/CK1", {"without": ("CKPT", "model/CK1")}),
    ("--stat", {"statistics": False}),
    ("--rtol 1e-5 --atol 1e-8", {"rtol": 1e-5, "atol": 1e-8}),
    (
        "--tolerance state=1e-3 --tolerance param:bf16=1e-2,1e-6",
        {"tolerances": {"state": (1e-3, 0.0), "param:bfloat16": (1e-2, 1e-6)}},
    ),
    ("--left-section ema --right-section model", {"left_section": "ema", "right_section": "model"}),
    ("--cast bf16", {"cast": "bfloat16"}),
    ("--cast torch.float16", {"cast": "float16"}),
    (r"--map ^module\.= --map a=b=c", {"renames": ((r"^module\.", ""), ("a=b", "c"))}),
    (r"--map (\w+)\.w=\1.weight", {"renames": ((r"(\w+)\.w", r"\1.weight"),)}),
    ("--gate findings --fail-on warning --select CK1", {"gate": "findings", "fail_on": "warning", "select": ("CK1",)}),
    ("--freeze backbone.*=hold --freeze a=b=reset",
     {"freeze": {"backbone.*": "hold", "a=b": "reset"}, "gate": "findings"}),
    ("--require CK3,CK401 --gate findings", {"require": ("CK3", "CK401"), "gate": "findings"}),
    ("--require CK3", {"require": ("CK3",), "gate": "findings"}),
    ("--baseline old.json", {"baseline": Path("old.json"), "gate": "findings"}),
    ("--write-baseline new.json", {"write_baseline": Path("new.json"), "gate": "findings"}),
    ("--top 3 -v --no-progress", {}),
]  # fmt: skip


def test_diff_without_options_has_the_defaults_of_the_contract(ckptcheck):
    verbs = FakeVerbs(MATCHING)
    assert ckptcheck("diff", "a", "b", verbs=verbs).exit_code == 0
    assert verbs.called == DIFF_DEFAULTS


@pytest.mark.parametrize(("options", "changed"), DIFF_OPTIONS)
def test_an_option_of_diff_reaches_the_verb(ckptcheck, options, changed):
    verbs = FakeVerbs(MATCHING)
    outcome = ckptcheck("diff", "a", "b", *options.split(), verbs=verbs)
    assert outcome.exit_code == 0, outcome.output
    assert verbs.called == DIFF_DEFAULTS | changed


def test_check_and_inspect_hand_on_what_they_got(ckptcheck):
    verbs = FakeVerbs(WHOLE)
    ckptcheck("check", "c", "--select", "CK101,CK2", "--ignore", "CK105", "--fail-on", "warning", verbs=verbs)
    assert verbs.called == CHECK_DEFAULTS | {"select": ("CK101", "CK2"), "ignore": ("CK105",), "fail_on": "warning"}
    ckptcheck("inspect", "c", "--names", "n.txt", verbs=verbs)
    assert verbs.called == {"path": Path("c"), "names": Path("n.txt"), "digests": False}


@pytest.mark.parametrize(("options", "changed"), CHECK_OPTIONS)
def test_an_option_of_check_reaches_the_verb(ckptcheck, options, changed):
    verbs = FakeVerbs(WHOLE)
    outcome = ckptcheck("check", "c", *options.split(), verbs=verbs)
    assert outcome.exit_code == 0, outcome.output
    assert verbs.called == CHECK_DEFAULTS | changed


WRONG = [
    ("diff a", "Missing argument 'RIGHT'"),
    ("diff a b --top -1", "'--top'"),
    ("diff a b --cast int5", "there is no dtype 'int5'"),
    ("diff a b --tolerance state", "'state' is not ROLE[:DTYPE]=RTOL[,ATOL]"),
    ("diff a b --tolerance =1", "is not ROLE[:DTYPE]=RTOL[,ATOL]"),
    ("diff a b --tolerance state:=1", "is not ROLE[:DTYPE]=RTOL[,ATOL]"),
    ("diff a b --tolerance state=x", "'x' is not RTOL or RTOL,ATOL"),
    ("diff a b --tolerance state=1,2,3", "'1,2,3' is not RTOL or RTOL,ATOL"),
    ("diff a b --tolerance state=-1", "'-1' is not RTOL or RTOL,ATOL"),
    ("diff a b --tolerance state=1,inf", "'1,inf' is not RTOL or RTOL,ATOL"),
    ("diff a b --tolerance state=nan", "'nan' is not RTOL or RTOL,ATOL"),
    ("diff a b --tolerance state:int5=1", "there is no dtype 'int5'"),
    ("diff a b --map module", "'module' is not PATTERN=REPLACEMENT"),
    ("diff a b --map (=x", "'(=x' is no regular expression"),
    (r"diff a b --map a=\1", "is no regular expression with its replacement"),
    ("diff a b --only=", "the pattern is empty"),
    ("diff a b --ignore CK2,", "'' is no rule code"),
    ("diff a b --ignore CK9", "'CK9' is no rule code"),
    ("diff a b --gate all", "'content', 'findings'"),
    ("diff a b --gate content --freeze a=hold", "--freeze judges by findings: leave --gate content out"),
    ("diff a b --gate content --require CK3", "--require judges by findings: leave --gate content out"),
    ("diff a b --freeze a=cold", "there is no contract 'cold'"),
    ("diff a b --config=", "the path is empty"),
    ("check", "Missing argument 'CKPT'"),
    ("check c --for training", "'auto', 'resume', 'release'"),
    ("check c --freeze backbone", "is not GLOB=CONTRACT"),
    ("check c --freeze backbone=frozen", "there is no contract 'frozen'"),
    ("check c --require CK8", "'CK8' is no rule code"),
    ("inspect c --textconv --format json", "--textconv is a form of its own"),
    ("inspect c --textconv --report json=x.json", "--textconv is a form of its own"),
    ("inspect c --fail-on error", "--fail-on"),
]


@pytest.mark.parametrize(("line", "said"), WRONG)
def test_a_wrong_command_line_is_one_line_on_stderr_and_exit_2(ckptcheck, line, said):
    assert_is_refused(ckptcheck, line, said)


WARNED = replace(WHOLE, findings=(Finding("CK105", "storage-bloat", Severity.WARNING, "wasted", Place()),))


@pytest.mark.parametrize(("command", "result", "code"), [
    ("diff a b", MATCHING, 0), ("diff a b", DIFFERENT, 1), ("diff a b", NOTHING, 3),
    ("diff a b --on-inconclusive fail", NOTHING, 1), ("diff a b --on-inconclusive pass", NOTHING, 0),
    ("diff a b --gate findings", GATED, 0), ("diff a b --gate findings --fail-on warning", GATED, 1),
    ("check c", WHOLE, 0), ("check c", DAMAGED, 1), ("check c", WARNED, 0), ("check c --fail-on warning", WARNED, 1),
    ("inspect c", INSPECTED, 0),
])  # fmt: skip
def test_the_exit_code_is_that_of_the_verdict_and_the_gate(ckptcheck, command, result, code):
    assert ckptcheck(*command.split(), verbs=FakeVerbs(result)).exit_code == code


def test_top_says_how_many_rows_a_section_shows(ckptcheck):
    shown = [ckptcheck("diff", "a", "b", "--top", top, verbs=FakeVerbs(DIFFERENT)).stdout for top in ("0", "1", "9")]
    assert ["fc.weight / exp_avg_sq" in one for one in shown] == [False, True, True]
    assert ["fc.weight / exp_avg:" in one for one in shown] == [False, False, True]


def test_a_report_file_shows_as_many_rows_as_the_text(ckptcheck, tmp_path):
    file = tmp_path / "r.txt"
    ckptcheck("diff", "a", "b", "--top", "1", "--report", f"text={file}", verbs=FakeVerbs(DIFFERENT))
    assert "fc.weight / exp_avg_sq" in file.read_text()
    assert "fc.weight / exp_avg:" not in file.read_text()


def test_textconv_prints_the_listing_and_nothing_else(ckptcheck):
    verbs = FakeVerbs(INSPECTED)
    outcome = ckptcheck("inspect", "c", "--textconv", verbs=verbs)
    assert verbs.called["digests"] is True
    assert outcome.stdout.startswith("model fc.bias: float32[8]\n")
    assert outcome.stderr == ""


def test_a_result_without_findings_never_fails_by_severity(ckptcheck):
    assert ckptcheck("diff", "a", "b", verbs=FakeVerbs(Result("diff", Verdict.PASS))).exit_code == 0


def test_what_cannot_be_read_is_a_line_of_textconv_alone(ckptcheck, tmp_path):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(b"\xff\0")
    listed = ckptcheck("inspect", str(path), "--textconv", verbs=None)
    assert (listed.exit_code, listed.stderr) == (0, "")
    assert listed.stdout.startswith("unreadable: has 2 bytes")
    assert listed.stdout.count("\n") == 1
    plain = ckptcheck("inspect", str(path), verbs=None)
    assert (plain.exit_code, plain.stdout) == (2, "")
    absent = ckptcheck("inspect", str(tmp_path / "absent.pt"), "--textconv", verbs=None)
    assert (absent.exit_code, absent.stdout) == (2, "")

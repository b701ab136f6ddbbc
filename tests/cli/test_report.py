"""`ckptcheck report`, and every format through the command line."""

import json
import re

import pytest

from ckptcheck.cli.kinds import FORMATS
from ckptcheck.finding import Result, Verdict
from ckptcheck.reports.json import render, render_many
from ckptcheck.reports.page import Page
from ckptcheck.reports.table import ENDINGS, REPORTS
from tests.cli.fakes import FakeVerbs
from tests.reports.results import BROKEN, CLEAN, NOISY
from tests.reports.validity import ROOT, VALID, as_github, as_junit, as_sarif

CALLS = ("verify t", "compare a b", "diff a b", "check c", "inspect c", "probe SGD", "save t --steps 2 -o s",
         "resume t s --steps 4 -o r", "demo")  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(render(BROKEN, Page()))
    return path


def test_every_ending_has_its_format_and_every_format_its_ending():
    assert {*ENDINGS.values()} == {*FORMATS} - {"github"}


def test_the_readme_names_every_format_with_its_ending():
    table = re.search(r"<!-- formats -->\n(.*?)<!-- end -->", (ROOT / "README.md").read_text(), re.DOTALL)
    assert table is not None
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\.\w+)`)? \|", table[1], re.MULTILINE)
    endings = {form: ending for ending, form in ENDINGS.items()}
    assert rows == [(form, endings.get(form, "")) for form in FORMATS]


@pytest.mark.parametrize(("ending", "form"), ENDINGS.items())
def test_the_ending_of_the_file_tells_the_format(ckptcheck, tmp_path, saved, ending, form):
    outcome = ckptcheck("report", str(saved), "-o", str(tmp_path / f"told{ending.upper()}"))
    assert (outcome.exit_code, outcome.output) == (0, "")
    told = (tmp_path / f"told{ending.upper()}").read_text()
    if form in VALID:
        VALID[form](told)
    else:
        assert told.lstrip().lower().startswith("<!doctype html>" if form == "html" else "fail  ")


@pytest.mark.parametrize("form", REPORTS)
def test_any_format_goes_to_stdout_and_the_verdict_is_no_exit_code(ckptcheck, saved, form):
    outcome = ckptcheck("report", str(saved), "--format", form)
    assert (outcome.exit_code, outcome.stderr) == (0, "")
    if form in VALID:
        VALID[form](outcome.stdout)


def test_without_a_format_it_is_the_text_of_the_command(ckptcheck, tmp_path, saved):
    live = ckptcheck("verify", "t", "-v", "--report", f"text={tmp_path / 'live'}", verbs=FakeVerbs(BROKEN))
    again = ckptcheck("report", str(saved), "-v", "-o", str(tmp_path / "again.txt"))
    assert (live.exit_code, again.exit_code) == (1, 0)
    assert (tmp_path / "again.txt").read_text() == (tmp_path / "live").read_text()
    assert ckptcheck("report", str(saved), "-v").stdout == live.stdout


def test_several_files_are_written_of_one_result_and_a_list_makes_one_document(ckptcheck, tmp_path, saved):
    saved.write_text(render_many((CLEAN, BROKEN), Page()))
    outcome = ckptcheck("report", str(saved), "-o", str(tmp_path / "a.sarif"), "-o", str(tmp_path / "a.xml"))
    assert outcome.exit_code == 0
    assert len(as_sarif((tmp_path / "a.sarif").read_text())["runs"]) == 2
    assert len(as_junit((tmp_path / "a.xml").read_text())) == 2


def test_standard_input_is_read(ckptcheck):
    from click.testing import CliRunner

    from ckptcheck.cli.main import door

    outcome = CliRunner().invoke(door, ["report", "-", "-q"], input=render(BROKEN, Page()))
    assert (
        outcome.stdout
        == "FAIL  optimizer state missing for parameter (CK202), first at step 10, right after the load\n"
    )
    assert (
        CliRunner().invoke(door, ["report", "-"], input="").stderr.startswith("ckptcheck: error: standard input is no")
    )


@pytest.mark.parametrize(("written", "line", "said"), [
    ("{", "report {file}", "is no JSON"),
    ("[1]", "report {file} -o {file}.md", "is no result of ckptcheck"),
    (None, "report {file}", "cannot read"),
    ("\xff\xfe", "report {file}", "is no JSON"),
    ("{}", "report {file} -o x.pdf", "no format has the ending '.pdf'; use one of .txt, .json, .xml"),
    ("{}", "report {file} -o x", "no format has the ending ''"),
    ("{}", "report {file} -o a.md -o b.md --format text", "--format is for one FILE"),
    ("{}", "report {file} -o absent/a.md", "cannot write absent/a.md: there is no folder"),
    ("{}", "report {file} -q -v", "exclude each other"),
    ("{}", "report {file} --format pdf", "there is no format 'pdf'"),
    ("{}", "report", "Missing argument 'RESULT.json'"),
])  # fmt: skip
def test_what_cannot_be_rendered_is_one_line_and_exit_2(ckptcheck, tmp_path, written, line, said):
    path = tmp_path / "r"
    if written is not None:
        path.write_text(written)
    outcome = ckptcheck(*line.format(file=path).split())
    assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert said in outcome.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["r"] * (written is not None)


def test_a_file_of_other_bytes_is_refused(ckptcheck, tmp_path):
    (tmp_path / "r").write_bytes(b"\xff\x00" * 10)
    assert "is no JSON: it is no UTF-8 text" in ckptcheck("report", str(tmp_path / "r")).stderr
    assert "cannot read" in ckptcheck("report", str(tmp_path)).stderr


def test_a_file_that_is_larger_than_any_result_is_refused_before_it_is_read_whole(ckptcheck, saved, monkeypatch):
    monkeypatch.setattr("ckptcheck.reports.saved.MAX_BYTES", 1 << 12)
    assert "is no result of ckptcheck: it has more than" in ckptcheck("report", str(saved)).stderr


# -- every format of every command


@pytest.mark.parametrize("form", VALID)
@pytest.mark.parametrize("line", CALLS)
def test_every_command_has_every_format_on_stdout_and_in_a_file(ckptcheck, tmp_path, line, form):
    verbs = FakeVerbs(BROKEN if line.startswith("verify") else CLEAN, broken=BROKEN)
    told = tmp_path / "told"
    outcome = ckptcheck(*line.split(), "--format", form, "--report", f"{form}={told}", verbs=verbs)
    assert outcome.exit_code == (1 if line.startswith("verify") else 0)
    VALID[form](outcome.stdout)
    assert told.read_text() == outcome.stdout


def test_the_card_of_a_rule_stands_in_sarif(ckptcheck):
    log = as_sarif(ckptcheck("verify", "t", "--format", "sarif", verbs=FakeVerbs(BROKEN)).stdout)
    rules = {one["id"]: one for one in log["runs"][0]["tool"]["driver"]["rules"]}
    assert rules["CK608"]["name"] == "scaler-diverged"
    assert all("What to do: " in one["help"]["text"] for one in rules.values())


@pytest.mark.parametrize(("choice", "kind"), [("pass", "skipped"), ("fail", "error")])
def test_what_inconclusive_means_is_the_same_in_a_report_as_in_the_exit_code(ckptcheck, choice, kind):
    outcome = ckptcheck("verify", "t", "--on-inconclusive", choice, "--format", "junit", verbs=FakeVerbs(NOISY))
    assert outcome.exit_code == (choice == "fail")
    assert as_junit(outcome.stdout)[0].find("testcase")[0].tag == kind


# -- what a pipeline finds after exit code 2


@pytest.mark.parametrize("form", VALID)
@pytest.mark.parametrize("line", ["check absent.pt", "check absent.pt --no-such-option", "check"])
def test_an_error_is_a_document_on_stdout_and_in_every_report(ckptcheck, tmp_path, form, line):
    told = tmp_path / "told"
    told.write_text("of an earlier run")
    outcome = ckptcheck(*line.split(), f"--format={form}", "--report", f"{form}={told}", "--report=text=/dev/null")
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("ckptcheck: error: ")
    VALID[form](outcome.stdout)
    assert told.read_text() == outcome.stdout
    if form == "json":
        assert json.loads(outcome.stdout)["verdict"] == "error"
    if form == "junit":
        assert as_junit(outcome.stdout).get("errors") == "1"
    if form == "github":
        assert [level for level, _, _ in as_github(outcome.stdout)] == ["error"]


def test_what_comes_after_two_dashes_and_what_is_no_format_asks_for_no_document(ckptcheck, tmp_path):
    words = ("record", "--no-such-option", "--", "x", "--report", f"json={tmp_path / 'a'}", "--format", "json")
    assert ckptcheck(*words).stdout == ""
    ckptcheck("check", "absent", "--report", f"pdf={tmp_path / 'b'}")
    ckptcheck("check", "absent", "--report", "json", "--report", "json=")
    assert [*tmp_path.iterdir()] == []


def test_a_report_that_fails_late_takes_no_other_one_with_it(ckptcheck, tmp_path):
    folder, kept = tmp_path / "gone", tmp_path / "kept.json"
    folder.mkdir()
    verbs = FakeVerbs(BROKEN, during=folder.rmdir)
    reports = ("--report", f"text={folder / 'r'}", "--report", f"json={kept}")
    outcome = ckptcheck("verify", "t", "--format", "sarif", *reports, verbs=verbs)
    assert outcome.exit_code == 2
    assert json.loads(kept.read_text())["verdict"] == "fail", "the result, and not the error that came after it"
    assert as_sarif(outcome.stdout)["runs"][0]["invocations"][0]["exitCode"] == 2


def test_a_report_that_cannot_be_written_early_is_told_in_the_others(ckptcheck, tmp_path):
    kept = tmp_path / "kept.json"
    ckptcheck("verify", "t", "--report", f"json={kept}", "--report", f"text={tmp_path / 'no' / 'r'}", verbs=FakeVerbs())
    assert json.loads(kept.read_text())["verdict"] == "error"
    assert [*tmp_path.iterdir()] == [kept]


def test_a_command_that_is_none_is_told_without_its_name(ckptcheck):
    told = json.loads(ckptcheck("b c\x1b", "--format", "json").stdout)
    assert (told["command"], told["verdict"]) == ("", "error")


def test_a_result_that_is_a_pass_is_green_everywhere(ckptcheck):
    verbs = FakeVerbs(Result("verify", Verdict.PASS, CLEAN.compared))
    assert as_junit(ckptcheck("verify", "t", "--format", "junit", verbs=verbs).stdout).get("failures") == "0"
    assert as_sarif(ckptcheck("verify", "t", "--format", "sarif", verbs=verbs).stdout)["runs"][0]["results"] == []
    told = as_github(ckptcheck("verify", "t", "--format", "github", verbs=verbs).stdout)
    assert [level for level, _, _ in told] == ["notice"]

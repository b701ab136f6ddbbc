"""Policy on the command line: what the settings accept and weigh reaches the verbs, and a pipeline gates by it."""

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import torch

from ckptcheck.config import Acceptance
from ckptcheck.finding import Accepted, Finding, Place, Result, Severity, Verdict
from tests.cli.fakes import FakeVerbs
from tests.cli.refusals import assert_is_refused
from tests.reports.checkpoint_results import MATCHING, WHOLE

SETTINGS = """
severity = {CK205 = "error"}
tolerance = {param = {rtol = 0.5}, loss = {atol = 1.0}}
accept = [{code = "CK501", reason = "known", parameter = "a.*", until = 2027-01-31}]
"""
DECIDED = {
    "severity": {"CK205": "error"},
    "accept": (Acceptance("CK501", "known", "a.*", date(2027, 1, 31), "ckptcheck.toml, accept[0]"),),
}
BY_ROLE = {"param": (0.5, 0.0), "loss": (0.0, 1.0)}


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "ckptcheck.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(ckptcheck, line: str, result: Result) -> dict:
    verbs = FakeVerbs(result)
    outcome = ckptcheck(*line.split(), verbs=verbs)
    assert outcome.exit_code == 0, outcome.output
    return verbs.called


@pytest.mark.parametrize(("line", "tolerances"), [
    ("verify t.py", BY_ROLE),
    ("verify t.py --rtol 0", {}),
    ("verify t.py --atol 0.1", {}),
    ("verify --run a --resume b", BY_ROLE),
    ("compare a b", BY_ROLE),
    ("compare a b --rtol 0.1", {}),
    ("diff a b", {}),
    ("diff a b --gate findings", {"param": (0.5, 0.0)}),
    ("diff a b --gate findings --atol 0.1", {}),
    ("diff a b --gate findings --tolerance state=0.1", {"state": (0.1, 0.0)}),
    ("check c", None),
])  # fmt: skip
def test_every_gate_gets_what_the_settings_decide_and_the_command_line_wins(ckptcheck, project, line, tolerances):
    told = called(ckptcheck, line, MATCHING if line.startswith("diff") else WHOLE)
    assert {name: told[name] for name in DECIDED} == DECIDED
    assert told.get("tolerances") == tolerances


def test_compare_takes_the_settings_as_the_others_do(ckptcheck, project):
    (project / "other.toml").write_text('select = ["CK6"]\nignore = ["CK614"]\nfail-on = "warning"')
    told = called(ckptcheck, "compare a b --config other.toml", WHOLE)
    assert (told["select"], told["ignore"], told["fail_on"], told["accept"]) == (("CK6",), ("CK614",), "warning", ())


WRONG = [
    ("check c --write-baseline absent/b.json", "cannot write absent/b.json: there is no folder absent; make it first"),
    ("verify t --write-baseline .", "it is a folder; name a file in it"),
    ("diff a b --gate content --baseline b.json", "--baseline judges by findings: leave --gate content out"),
    ("diff a b --gate content --write-baseline b.json", "--write-baseline judges by findings: leave --gate content"),
    ("compare a b --baseline ", "the path is empty"),
    ("config --format yaml", "yaml"),
]


@pytest.mark.parametrize(("line", "said"), WRONG)
def test_a_wrong_line_is_refused_before_anything_is_done(ckptcheck, project, line, said):
    if line.endswith(" "):
        outcome = ckptcheck(*line.split(), "", verbs=FakeVerbs())
        assert outcome.exit_code == 2
        assert said in outcome.stderr
    else:
        assert_is_refused(ckptcheck, line, said)


FOUND = Finding("CK501", "non-finite", Severity.ERROR, "it is", Place(parameter="a.w"))


@pytest.mark.parametrize(("accepted", "fail_on", "code"), [
    (None, "error", 1), (None, "never", 0), (Accepted("known", None, "here"), "error", 0),
    (Accepted("known", None, "here"), "warning", 0),
])  # fmt: skip
def test_what_is_accepted_does_not_gate(ckptcheck, accepted, fail_on, code):
    found = Finding(FOUND.code, FOUND.name, FOUND.severity, FOUND.message, FOUND.where, accepted=accepted)
    verbs = FakeVerbs(Result("verify", Verdict.PASS, findings=(found,)))
    outcome = ckptcheck("verify", "t", "--fail-on", fail_on, verbs=verbs)
    assert outcome.exit_code == code


def test_a_baseline_that_could_not_be_written_is_exit_2_after_the_result(ckptcheck):
    written = {"path": "b.json", "findings": None, "error": "cannot write the baseline b.json: full"}
    parts = {"acceptances": {"unused": [], "expired": [], "written": written}}
    verbs = FakeVerbs(Result("verify", Verdict.FAIL, findings=(FOUND,), parts=parts))
    outcome = ckptcheck("verify", "t", verbs=verbs)
    assert outcome.exit_code == 2
    assert outcome.stdout.startswith("FAIL  ")
    assert outcome.stderr == "ckptcheck: error: cannot write the baseline b.json: full\n"
    told = json.loads(ckptcheck("verify", "t", "--format", "json", verbs=verbs).stdout)
    assert (told["verdict"], told["error"]) == ("error", "cannot write the baseline b.json: full")
    verbs = FakeVerbs(Result("verify", Verdict.INCONCLUSIVE, parts=parts))
    assert ckptcheck("verify", "t", verbs=verbs).exit_code == 3


def test_config_shows_the_settings_and_what_is_over(ckptcheck, project):
    (project / "ckptcheck.toml").write_text(
        'fail-on = "never"\n[[accept]]\ncode = "CK501"\nreason = "one"\nuntil = 2020-01-31\n'
        '[[accept]]\ncode = "CK502"\nreason = "two"\n'
    )
    outcome = ckptcheck("config")
    assert outcome.exit_code == 0
    lines = [line.split() for line in outcome.stdout.splitlines()]
    assert ["fail-on", "ckptcheck.toml:1", '"never"'] in lines
    assert ["verify.device", "default", '"cpu"'] in lines
    assert "Accepted     CK502: two (ckptcheck.toml, accept[1], line 6)" in outcome.stdout
    assert "Expired      CK501 until 2020-01-31: one (ckptcheck.toml, accept[0], line 2)" in outcome.stdout
    told = json.loads(ckptcheck("config", "--format", "json").stdout)
    assert (told["command"], told["verdict"], told["file"]) == ("config", "pass", str(project / "ckptcheck.toml"))
    assert [one["in_force"] for one in told["accept"]] == [False, True]


def test_config_works_without_settings_and_refuses_wrong_ones(ckptcheck, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.toml").write_text("")
    outcome = ckptcheck("config", "--config", "none.toml", "-q")
    assert (outcome.exit_code, outcome.stdout) == (0, "0 settings from none.toml\n")
    (tmp_path / "wrong.toml").write_text("[severity]\nCK299 = 'info'")
    assert_is_refused(ckptcheck, "config --config wrong.toml", "severity CK299: no rule has the code CK299; did you")
    (tmp_path / "wrong.toml").write_text("tolerance = {parm = {}}")
    assert_is_refused(ckptcheck, "config --config wrong.toml", "there is no role parm in tolerance; did you mean")
    assert_is_refused(ckptcheck, "config --config absent.toml", "cannot read the settings in absent.toml: No such file")


ACCEPT = '[[accept]]\ncode = "CK501"\nparameter = "head.*"\nreason = "it is known"\nuntil = %s-01-31\n'


@pytest.fixture
def checkpoints(tmp_path) -> Path:
    """A clean checkpoint, one with a NaN in its head, one with another in its body."""
    for name, odd in (("clean", ()), ("broken", ("head",)), ("worse", ("head", "body"))):
        model = {f"{part}.weight": torch.arange(6.0).reshape(2, 3) + 1 for part in ("head", "body")}
        for part in odd:
            model[f"{part}.weight"][1, 2] = torch.nan
        torch.save({"model": model, "step": 2}, tmp_path / f"{name}.pt")
    return tmp_path


def test_a_pipeline_gates_by_acceptances_until_their_date(checkpoints):
    def gate(line: str, settings: str = "", code: int = 0) -> str:
        (checkpoints / "ckptcheck.toml").write_text(settings)
        done = subprocess.run([sys.executable, "-m", "ckptcheck", *line.split()], cwd=checkpoints,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert (done.returncode, done.stderr) == (code, ""), done.stdout + done.stderr
        return done.stdout

    gate("check clean.pt")
    assert gate("check broken.pt", code=1).startswith("FAIL  non finite (CK501)")
    assert gate("check broken.pt", ACCEPT % 9999).startswith("PASS  accepted: non finite (CK501), until 9999-01-31")
    said = gate("check broken.pt", ACCEPT % 2020, 1)
    assert said.startswith("FAIL  non finite (CK501)")
    assert "Expired      CK501 in head.* until 2020-01-31: 1 finding no longer accepted" in said


def test_a_pipeline_gates_what_is_new_beside_a_baseline(ckptcheck, checkpoints, monkeypatch):
    def gate(line: str, settings: str = "", code: int = 0) -> str:
        (checkpoints / "ckptcheck.toml").write_text(settings)
        outcome = ckptcheck(*line.split())
        assert (outcome.exit_code, outcome.stderr) == (code, ""), outcome.output
        return outcome.stdout

    monkeypatch.chdir(checkpoints)
    gate("check worse.pt", ACCEPT % 9999, 1)
    said = gate("check broken.pt --select CK5 --write-baseline b.json")
    assert "Baseline     1 finding written to b.json, and accepted" in said
    told = json.loads(gate("check broken.pt --baseline b.json --format json"))
    assert told["findings"][0]["accepted"]["source"] == "baseline b.json"
    assert gate("check worse.pt --baseline b.json", code=1).startswith("FAIL  non finite (CK501)")
    assert "1 of them is gone" in gate("check clean.pt --baseline b.json")


def test_a_difference_of_content_is_not_for_a_project_to_accept(ckptcheck, checkpoints, monkeypatch):
    monkeypatch.chdir(checkpoints)
    (checkpoints / "ckptcheck.toml").write_text(ACCEPT % 9999)
    assert ckptcheck("diff", "clean.pt", "broken.pt").exit_code == 1
    assert ckptcheck("diff", "clean.pt", "broken.pt", "--gate", "findings", "--select", "CK5").exit_code == 0
    assert ckptcheck("diff", "clean.pt", "worse.pt", "--gate", "findings", "--select", "CK5").exit_code == 1
    assert ckptcheck("diff", "clean.pt", "worse.pt", "--select", "CK5", "--write-baseline", "b.json").exit_code == 0
    assert ckptcheck("diff", "clean.pt", "worse.pt", "--select", "CK5", "--baseline", "b.json").exit_code == 0

"""Settings of a project reach the commands as defaults; the command line wins."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.check_cases.frozen import FAULTY
from tests.cli.fakes import FakeVerbs
from tests.cli.refusals import assert_is_refused
from tests.reports.checkpoint_results import MATCHING, WHOLE

SHARED = 'select = ["CK2", "CK4"]\nignore = ["CK207"]\nfail-on = "warning"\nrequire = ["CK401"]\n' \
         'freeze = {"a.*" = "hold"}\n'  # fmt: skip
VERIFY = '[verify]\ntarget = "t.py"\nsteps = 30\nresume-at = [10, 20]\ndevice = "cuda"\nrepeats = 3\n' \
         'policy = "state-exact"\non-inconclusive = "pass"\n'  # fmt: skip


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "ckptcheck.toml").write_text(SHARED + VERIFY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(ckptcheck, line: str, result=WHOLE) -> dict:
    verbs = FakeVerbs(result)
    outcome = ckptcheck(*line.split(), verbs=verbs)
    assert outcome.exit_code == 0, outcome.output
    return verbs.called


def test_check_takes_what_the_command_line_leaves_open(ckptcheck, project):
    told = called(ckptcheck, "check c")
    assert told["select"] == ("CK2", "CK4")
    assert told["ignore"] == ("CK207",)
    assert told["require"] == ("CK401",)
    assert told["freeze"] == {"a.*": "hold"}
    assert told["fail_on"] == "warning"


def test_the_command_line_wins_option_by_option(ckptcheck, project):
    told = called(ckptcheck, "check c --select CK5 --freeze b=reset --fail-on never")
    assert (told["select"], told["freeze"], told["fail_on"]) == (("CK5",), {"b": "reset"}, "never")
    assert (told["ignore"], told["require"]) == (("CK207",), ("CK401",))


def test_verify_takes_its_own_table_too(ckptcheck, project):
    told = called(ckptcheck, "verify --steps 40")
    wanted = {"target": "t.py", "steps": 40, "resume_at": (10, 20), "device": "cuda", "repeats": 3,
              "policy": "state-exact", "select": ("CK2", "CK4"), "freeze": {"a.*": "hold"},
              "require": ("CK401",)}  # fmt: skip
    assert told | wanted == told


def test_commands_on_the_command_line_leave_out_what_the_file_says_of_a_target(ckptcheck, project):
    told = called(ckptcheck, "verify --run a --resume b --resume-at 10")
    wanted = {"target": None, "run": "a", "device": "cpu", "steps": 30, "repeats": 3, "policy": "state-exact"}
    assert told | wanted == told


def test_commands_in_the_file_are_verified_unless_a_target_is_named(ckptcheck, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckptcheck.toml").write_text('[verify]\nrun = "a {dir}"\nresume = "b {ckpt}"\nsteps = 5')
    told = called(ckptcheck, "verify")
    assert (told["target"], told["run"], told["resume"], told["steps"]) == (None, "a {dir}", "b {ckpt}", 5)
    told = called(ckptcheck, "verify t.py")
    assert (told["target"], told["run"], told["resume"]) == ("t.py", None, None)


def test_contracts_of_a_file_hold_in_diff_only_where_findings_gate(ckptcheck, project):
    plain = called(ckptcheck, "diff a b", MATCHING)
    assert (plain["gate"], plain["freeze"], plain["require"]) == ("content", {}, ())
    assert (plain["ignore"], plain["without"]) == (("CK207",), ())
    gated = called(ckptcheck, "diff a b --gate findings", MATCHING)
    assert (gated["freeze"], gated["require"]) == ({"a.*": "hold"}, ("CK401",))


def test_a_pattern_given_to_diff_leaves_the_codes_of_the_file_in_force(ckptcheck, project):
    told = called(ckptcheck, "diff a b --ignore rng", MATCHING)
    assert (told["ignore"], told["without"]) == (("CK207",), ("rng",))
    told = called(ckptcheck, "diff a b --ignore rng --ignore CK1", MATCHING)
    assert (told["ignore"], told["without"]) == (("CK1",), ("rng",))


def test_another_file_can_be_named(ckptcheck, project):
    (project / "other.toml").write_text('select = ["CK1"]')
    told = called(ckptcheck, "check c --config other.toml")
    assert (told["select"], told["ignore"]) == (("CK1",), ())
    (project / "none.toml").write_text("")
    assert called(ckptcheck, "check c --config none.toml")["select"] == ("CK",)


@pytest.mark.parametrize("command", ["check c", "diff a b", "verify t"])
def test_a_wrong_setting_is_one_line_and_exit_2(ckptcheck, project, command):
    (project / "ckptcheck.toml").write_text("selct = []")
    assert_is_refused(ckptcheck, command, "there is no key selct; did you mean select?")
    assert ckptcheck(command.split()[0], "--help").exit_code == 0


def test_commands_without_rules_do_not_look_at_settings(ckptcheck, project):
    (project / "ckptcheck.toml").write_text("selct = []")
    verbs = FakeVerbs(WHOLE)
    assert ckptcheck("inspect", "c", verbs=verbs).exit_code == 0


def run(folder: Path, *arguments: str) -> tuple[int, dict]:
    done = subprocess.run([sys.executable, "-m", "ckptcheck", *arguments, "--format", "json"], cwd=folder,
                          capture_output=True, text=True, check=False)  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def test_a_real_process_fails_by_a_contract_of_pyproject_toml(tmp_path):
    left, right = next(case for case in FAULTY if case.code == "CK401").make(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.ckptcheck]\nselect = ["CK4"]\n[tool.ckptcheck.freeze]\n"backbone.*" = "no-update"\n'
    )
    below = tmp_path / "below"
    below.mkdir()
    code, told = run(below, "diff", str(left), str(right), "--gate", "findings")
    assert code == 1
    assert {one["code"] for one in told["findings"]} == {"CK401"}
    assert told["findings"][0]["evidence"]["contract"] == "no-update"
    code, told = run(below, "diff", str(left), str(right), "--gate", "findings", "--freeze", "head.*=removed")
    assert {one["code"] for one in told["findings"]} == {"CK403"}
    torch.save({"model": {"backbone.w": torch.ones(2)}}, tmp_path / "weights.pt")
    (tmp_path / "pyproject.toml").write_text("[tool.ckptcheck]\nfrezee = 1\n")
    code, told = run(below, "check", str(tmp_path / "weights.pt"))
    assert (code, told["verdict"]) == (2, "error")
    assert "there is no key frezee; did you mean freeze?" in told["error"]


def test_the_file_may_leave_the_points_to_be_picked(ckptcheck, tmp_path, monkeypatch):
    (tmp_path / "ckptcheck.toml").write_text('[verify]\ntarget = "t.py"\nresume-at = "auto"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert called(ckptcheck, "verify")["resume_at"] == ("auto",)
    assert called(ckptcheck, "verify --resume-at 3")["resume_at"] == (3,)


RUNS = "verify --run a --resume b"
DEMANDED = [
    ("check c", '["CK603", "CK102"]', ("CK102",)),
    ("check c", '["CK6"]', ("CK6",)),
    ("check c", '["CK307", "CK106"]', ()),
    ("check c --target t.py", '["CK307"]', ("CK307",)),
    ("check .", '["CK106"]', ("CK106",)),
    ("check c", '["CK205"]', ("CK205",)),
    ("check c --for release", '["CK205"]', ()),
    ("check c --require CK603", '["CK102"]', ("CK603",)),
    ("diff a b --gate findings", '["CK603", "CK401", "CK5"]', ("CK401", "CK5")),
    ("verify t.py", '["CK102", "CK603", "CK615", "CK609"]', ("CK603", "CK609")),
    ("verify t.py --require CK102", '["CK603"]', ("CK102",)),
    (RUNS, '["CK102", "CK603", "CK615", "CK609"]', ("CK603",)),
    (f"{RUNS} --interrupt TERM@2", '["CK615"]', ("CK615",)),
    (RUNS, '["CK61"]', ("CK610", "CK611", "CK612", "CK614")),
    ("verify t.py", '["CK61"]\nignore = ["CK611"]', ("CK610", "CK612", "CK613", "CK614")),
    ("verify t.py --select CK610", '["CK61"]', ("CK610",)),
    ("check c", '["CK603"]\nselect = ["CK6"]', ()),
    ("check c --select CK603", '["CK603"]\nselect = ["CK1"]', ()),
]  # fmt: skip


@pytest.mark.parametrize(("line", "require", "told"), DEMANDED)
def test_a_demand_of_the_file_counts_where_it_can_be_judged(ckptcheck, tmp_path, monkeypatch, line, require, told):  # noqa: PLR0917
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckptcheck.toml").write_text(f"require = {require}")
    result = MATCHING if line.startswith("diff") else WHOLE
    assert called(ckptcheck, line, result)["require"] == told


IMPOSSIBLE = [
    ('["CK699"]', "ckptcheck.toml: require CK699: no command has such a rule; did you mean CK609?"),
    ('["CK603"]\nselect = ["CK2", "CK102"]', "require CK603: select CK2,CK102 in the same file leaves it out"),
    ('["CK102"]\nignore = ["CK1"]', "require CK102: ignore CK1 in the same file leaves it out: take one of them back"),
    ('["CK6"]\nselect = ["CK2", "CK614"]\nignore = ["CK614"]', "require CK6: ignore CK614 in the same file"),
]  # fmt: skip


@pytest.mark.parametrize(("require", "said"), IMPOSSIBLE)
@pytest.mark.parametrize("line", ["check c", "diff a b --gate findings", "verify t.py", RUNS])
def test_a_demand_of_the_file_that_no_command_can_meet_is_refused(  # noqa: PLR0917
    ckptcheck, tmp_path, monkeypatch, line, require, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckptcheck.toml").write_text(f"require = {require}")
    assert_is_refused(ckptcheck, line, said)


@pytest.mark.parametrize(
    ("line", "require", "said"),
    [
        ("verify t.py --ignore CK603", '["CK603"]', "ckptcheck.toml: require CK603: --ignore CK603 leaves it out"),
        (f"{RUNS} --select CK2", '["CK61"]', "ckptcheck.toml: require CK61: --select CK2 leaves it out"),
    ],
)
def test_a_demand_of_the_file_that_the_command_line_leaves_out_is_refused_by_its_name(  # noqa: PLR0917
    ckptcheck, tmp_path, monkeypatch, line, require, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckptcheck.toml").write_text(f"require = {require}")
    assert_is_refused(ckptcheck, line, said)

"""The fixture `resume_check` in real pytest sessions: outcomes, what a failure says, settings, xdist."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ckptcheck.config import Acceptance, Config
from ckptcheck.errors import UsageError
from ckptcheck.pytest_plugin import asked_of
from tests.test_readme import block

ROOT = Path(__file__).parents[1]
PLUGIN = "ckptcheck.pytest_plugin"
IS_INSTALLED = any(one.value == PLUGIN for one in entry_points(group="pytest11"))
"""Whether pytest finds the plugin by itself; an editable installation from before it had one does not tell."""
FORKED = """
import pytest
from ckptcheck.experiment import process
from tests.experiment import forks

forks.PRELOADED.remove("sklearn.datasets")
forks.OF_THE_TESTS.clear()

@pytest.fixture(autouse=True)
def forked(monkeypatch):
    forks.serve()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(process, "start_fresh", forks.start_forked)
"""
"""Runs of these sessions start as forks: what a fresh interpreter costs is paid where experiments are tested."""
RUNS = """
import os
from ckptcheck.experiment.demo_targets import build, build_broken

def build_noisy(ctx):
    import torch
    run = build(ctx)
    torch.manual_seed(int.from_bytes(os.urandom(4), "big"))
    return run

def build_drawing(ctx):
    import torch
    run = build(ctx)
    load = run.load
    def load_and_draw(path):
        load(path)
        torch.rand(1)
    run.load = load_and_draw
    return run
"""
SETTINGS = """
[tool.pytest.ini_options]
pythonpath = ["src"]
addopts = ["-p", "no:cacheprovider"]
[[tool.ckptcheck.accept]]
code = "CK603"
reason = "known"
"""
TESTS = """
import os
from pathlib import Path

import pytest

STEPS = {"steps": 4}

def test_a_good_one_passes_and_is_returned(resume_check):
    result = resume_check("runs.py", steps=6, resume_at=[2, 4])
    assert result.passed
    assert result.parts["resume_at"] == [2, 4]
    assert resume_check("runs.py", **STEPS).parts["resume_at"] == [2]

def test_a_broken_one_fails(resume_check):
    resume_check("runs.py:build_broken", steps=4, resume_at=3)
    assert False, "this is not reached"

def test_a_file_is_found_in_the_rootdir(resume_check):
    assert resume_check("top.py:build", **STEPS)

def test_a_module_is_found_where_tests_find_it(resume_check):
    import inside.runs
    assert resume_check("inside.runs:build", **STEPS)
    root = Path(__file__).parents[1]  # a fork gets the path of these tests anyway; a fresh interpreter needs to be told
    assert os.environ["PYTHONPATH"].split(os.pathsep)[:2] == [str(root / "src"), str(root)]

def test_what_the_project_accepts_passes(resume_check):
    result = resume_check("runs.py:build_drawing", **STEPS)
    assert [one.accepted.reason for one in result.findings if one.code == "CK603"] == ["known"]

def test_what_a_test_ignores_does_not_fail_it(resume_check):
    resume_check("runs.py:build_broken", **STEPS, freeze={"0.*": "hold"}, ignore="CK4")

@pytest.mark.parametrize("choice", ["fail", "skip", "pass", "nothing"])
def test_noise(resume_check, choice):
    assert not resume_check("runs.py:build_noisy", **STEPS, on_inconclusive=choice)

def test_no_file(resume_check):
    resume_check("absent.py")

def test_no_option(resume_check):
    resume_check("runs.py", stepz=3)

def test_no_number(resume_check):
    resume_check("runs.py", steps="3")

def test_no_subject(resume_check):
    resume_check()

def test_commands_run_in_the_rootdir(resume_check):
    resume_check(run="sh -c 'pwd; exit 7' {dir}", resume="true {dir}")
"""
OUTCOMES = {
    "test_training_resumes_exactly": "passed",
    "test_a_good_one_passes_and_is_returned": "passed",
    "test_a_broken_one_fails": "failed",
    "test_a_file_is_found_in_the_rootdir": "passed",
    "test_a_module_is_found_where_tests_find_it": "passed",
    "test_what_the_project_accepts_passes": "passed",
    "test_what_a_test_ignores_does_not_fail_it": "failed",
    "test_noise[fail]": "failed",
    "test_noise[skip]": "skipped",
    "test_noise[pass]": "passed",
    "test_noise[nothing]": "failed",
    "test_no_file": "failed",
    "test_no_option": "failed",
    "test_no_number": "failed",
    "test_no_subject": "failed",
    "test_commands_run_in_the_rootdir": "failed",
}
SAID = {
    "test_a_broken_one_fails": r"CK201: runs.py:build_broken\nFAIL  optimizer state absent \(CK201\), first at step 3, "
    r"right after the load\n\nFirst at +step 3, right after the load: 0.weight, optimizer 0\n[\s\S]*\nTo do +save ",
    "test_what_a_test_ignores_does_not_fail_it": r"CK201: runs.py:build_broken\nFAIL ",
    "test_noise[fail]": r"CK611: runs.py:build_noisy\nINCONCLUSIVE ",
    "test_noise[skip]": r"INCONCLUSIVE  .*CK611",
    "test_noise[nothing]": r"ckptcheck: error: on_inconclusive='nothing': use fail, skip, pass$",
    "test_no_file": r"ckptcheck: error: the target 'absent.py' names a file that is neither in \S+/checks nor in \S+$",
    "test_no_option": r"ckptcheck: error: resume_check has no option 'stepz'; did you mean steps\?$",
    "test_no_number": r"ckptcheck: error: steps='3': give a whole number$",
    "test_no_subject": r"ckptcheck: error: nothing to verify: name a target, or give two commands",
    "test_commands_run_in_the_rootdir": r"PLACE\nckptcheck: error: .*exit code 7",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with a test folder, a module of its own, and settings."""
    place = tmp_path_factory.mktemp("project")
    files = {"pyproject.toml": SETTINGS, "conftest.py": FORKED, "top.py": RUNS, "checks/runs.py": RUNS,
             "checks/test_resume.py": TESTS, "src/inside/__init__.py": "", "src/inside/runs.py": RUNS,
             "checks/test_of_readme.py": block("pytest"), "checks/my_run.py": block("target")}  # fmt: skip
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return place


def session(place: Path, *arguments: str) -> tuple[dict[str, tuple[str, str]], str]:
    """Run pytest in a project; (outcome, what is said) by name of a test, and what is printed."""
    report = place / "report.xml"
    named = [] if IS_INSTALLED else ["-p", PLUGIN]
    more = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "checks", f"--junitxml={report}", *arguments, *named],
        cwd=place,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, more)), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = {}
    for case in ElementTree.parse(report).iter("testcase"):
        said = [one for one in case if one.tag in ("failure", "skipped", "error")]
        outcome = {"failure": "failed", "skipped": "skipped", "error": "error"}[said[0].tag] if said else "passed"
        text = (said[0].get("message") if outcome == "skipped" else said[0].text) if said else ""
        told[case.get("name")] = (outcome, text)
    return told, done.stdout


@pytest.fixture(scope="module")
def plain(project):
    return session(project)


def test_each_test_ends_as_its_experiment_does(plain):
    assert {name: outcome for name, (outcome, _) in plain[0].items()} == OUTCOMES


@pytest.mark.parametrize("name", SAID)
def test_what_does_not_pass_says_why_and_shows_nothing_of_ours(plain, project, name):
    text = plain[0][name][1]
    assert re.match(SAID[name].replace("PLACE", re.escape(str(project))), text), text
    for ours in ("Traceback", "pytest_plugin.py", "During handling"):
        assert ours not in text


def test_the_summary_names_the_code(plain):
    assert "\nFAILED checks/test_resume.py::test_a_broken_one_fails - Failed: CK201" in plain[1]


def test_the_report_fits_the_page_and_is_short_unless_more_is_wanted(plain):
    assert "evidence: " not in plain[0]["test_a_broken_one_fails"][1]
    assert max(map(len, plain[0]["test_a_broken_one_fails"][1].splitlines())) <= 80


def test_workers_of_xdist_do_not_get_in_each_others_way(project):
    told, _ = session(project, "-n", "2", "-k", "good or broken", "-vv")
    assert {name: outcome for name, (outcome, _) in told.items()} == {
        name: outcome for name, outcome in OUTCOMES.items() if re.search("good|broken", name)
    }
    assert told["test_a_broken_one_fails"][1].startswith("CK201: runs.py:build_broken\nFAIL ")
    assert "evidence: " in told["test_a_broken_one_fails"][1]  # all there is, under -vv


def test_the_entry_point_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"] == {"pytest11": {"ckptcheck": PLUGIN}}


def test_a_session_that_does_not_use_the_fixture_imports_nothing_of_ours_but_the_plugin():
    code = f"import sys; import {PLUGIN}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("ckptcheck")}
    assert ours == {"ckptcheck", PLUGIN}


ACCEPTED = Acceptance("CK501", "known")
FILE = Config(
    Path("pyproject.toml"),
    {"select": ["CK1", "CK2", "CK6"], "ignore": ["CK207"], "fail-on": "warning",
     "require": ["CK603", "CK615", "CK102"]},
    {"backbone.*": "hold"},
    {"target": "t.py", "run": "a", "resume": "b", "steps": 30, "resume-at": [5], "device": "cuda", "repeats": 3,
     "policy": "state-exact", "on-inconclusive": "pass"},
    {"CK205": "error"},
    {"param": (0.5, 0.0)},
    (ACCEPTED,),
)  # fmt: skip
POLICY = {"select": ["CK1", "CK2", "CK6"], "ignore": ["CK207"], "fail_on": "warning", "freeze": {"backbone.*": "hold"},
          "severity": {"CK205": "error"}, "tolerances": {"param": (0.5, 0.0)}, "accept": (ACCEPTED,),
          "repeats": 3, "policy": "state-exact", "on_inconclusive": "pass", "require": ("CK603",)}  # fmt: skip
ASKED: list[tuple[Config, Mapping[str, object], Mapping[str, object]]] = [
    (Config(), {"target": "t.py"}, {"target": "t.py", "steps": 20}),
    (Config(), {"run": "a", "resume": "b"}, {"run": "a", "resume": "b", "steps": 20}),
    (Config(), {"target": "t.py", "steps": 8, "resume_at": 4, "device": "cuda"},
     {"target": "t.py", "steps": 8, "resume_at": (4,), "device": "cuda"}),
    (Config(), {"target": "t.py", "resume_at": "auto", "select": "CK2", "ignore": ["CK6", "CK7"]},
     {"target": "t.py", "steps": 20, "resume_at": ("auto",), "select": ("CK2",), "ignore": ["CK6", "CK7"]}),
    (FILE, {"target": "other.py"}, {**POLICY, "target": "other.py", "steps": 30, "resume_at": [5], "device": "cuda"}),
    (FILE, {"run": "c", "resume": "d"}, {**POLICY, "run": "c", "resume": "d", "steps": 30, "resume_at": [5]}),
    (FILE, {"run": "c", "resume": "d", "interrupt": "TERM@3"},
     {**POLICY, "run": "c", "resume": "d", "steps": 30, "resume_at": [5], "interrupt": "TERM@3",
      "require": ("CK603", "CK615")}),
    (FILE, {"target": "t.py", "select": "CK60"},
     {**POLICY, "target": "t.py", "steps": 30, "resume_at": [5], "device": "cuda", "select": ("CK60",)}),
    (Config(None, {"select": ["CK2"], "ignore": ["CK6"], "require": ["CK603"]}),
     {"target": "t.py", "select": "CK6", "ignore": "CK2"},
     {"target": "t.py", "steps": 20, "select": ("CK6",), "ignore": ("CK2",), "require": ("CK603",)}),
    (FILE, {}, {**POLICY, "target": "t.py", "steps": 30, "resume_at": [5], "device": "cuda"}),
    (FILE, {"target": "t.py", "steps": 6, "resume_at": [2], "device": "cpu", "freeze": {}, "accept": (),
            "fail_on": "error", "require": ["CK102"], "on_inconclusive": "skip"},
     {**POLICY, "target": "t.py", "steps": 6, "resume_at": [2], "device": "cpu", "freeze": {}, "accept": (),
      "fail_on": "error", "require": ["CK102"], "on_inconclusive": "skip"}),
]  # fmt: skip


@pytest.mark.parametrize("name", ["rtol", "atol", "tolerances"])
def test_a_tolerance_of_the_test_takes_the_place_of_those_in_the_settings(name):
    assert asked_of(FILE, {"target": "t.py", name: 0.0}).get("tolerances", 0.0) == 0.0


@pytest.mark.parametrize(("config", "given", "asked"), ASKED)
def test_the_test_wins_over_the_settings_and_they_over_the_defaults(config, given, asked):
    assert asked_of(config, dict(given)) == asked


def test_a_demand_of_the_settings_that_the_test_leaves_out_is_refused():
    with pytest.raises(UsageError, match="require CK603: --ignore CK6 leaves it out"):
        asked_of(FILE, {"target": "t.py", "ignore": "CK6"})

"""What stands in `.github`: the action's own script in bash, and that the workflows ask for what there is."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from ckptcheck.cli.main import door

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
ACTION = ".github/actions/ckptcheck"
SAMPLES = ROOT / "fixtures" / "checkpoints"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
REPORTS = {"report.txt", "result.json", "junit.xml", "sarif.json", "summary.md", "report.html"}


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def action() -> dict:
    return read(ROOT / ACTION / "action.yml")


def scripts(action: dict) -> list[str]:
    return [step["run"] for step in action["runs"]["steps"] if "run" in step]


@pytest.fixture
def run(action, tmp_path):
    """Run the action's main step as a runner does: (exit code, standard output, outputs, job summary, reports)."""
    (step,) = (one for one in action["runs"]["steps"] if one.get("id") == "check")
    (tmp_path / "temp").mkdir()
    (tmp_path / "script.sh").write_text(step["run"], encoding="utf-8")

    def started(args: str, place: Path, config: str = "") -> tuple[int, str, dict[str, str], str, Path]:
        inputs = {"CKPTCHECK_ARGS": args, "CKPTCHECK_CONFIG": config, "CKPTCHECK_NAME": "A name"}
        assert inputs.keys() == step["env"].keys()
        files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for one in files.values():
            one.touch()
        path = os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        here = {"RUNNER_TEMP": str(tmp_path / "temp"), "PATH": path, **{name: str(one) for name, one in files.items()}}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(tmp_path / "script.sh")]
        done = subprocess.run(shell, cwd=place, env=os.environ | inputs | here, capture_output=True, text=True,
                              timeout=120, check=False)  # fmt: skip
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        reports = Path(outputs["reports"])
        summary = files["GITHUB_STEP_SUMMARY"].read_text()
        return done.returncode, done.stdout, outputs, summary, reports

    return started


@pytest.mark.parametrize(("args", "code", "verdict"), [
    ("check 01_torch_save/zip_full.pt", 0, "pass"), ("check 02_torch_edge/bitflip.pt", 1, "fail"),
])  # fmt: skip
def test_the_action_keeps_the_exit_code_and_leaves_every_report(run, args, code, verdict):
    ended, said, outputs, summary, reports = run(args, SAMPLES)
    assert (ended, outputs["exit-code"]) == (code, str(code))
    assert {one.name for one in reports.iterdir()} == REPORTS
    assert json.loads((reports / "result.json").read_text())["verdict"] == verdict
    assert int(ElementTree.parse(reports / "junit.xml").getroot().get("failures", "")) >= code
    assert summary.startswith(f"## A name\n\n### {verdict.upper()}: ")
    assert said.startswith("::error file=" if code else "::notice file=")
    assert f"\n::group::A name: report\n{(reports / 'report.txt').read_text()}::endgroup::\n" in said


def test_an_input_that_cannot_be_read_is_an_annotation_and_exit_2(run, tmp_path):
    ended, said, outputs, summary, reports = run("check '$(touch made) 100%.pt'", tmp_path)
    assert (ended, outputs["exit-code"]) == (2, "2")
    assert "::$(touch made) 100%25.pt: there is no such file or folder\n" in said
    assert not (tmp_path / "made").exists()
    assert "there is no such file or folder" in summary
    assert {one.name for one in reports.iterdir()} == REPORTS


def test_a_tool_that_is_killed_is_told_too(run, tmp_path):
    (tmp_path / "bin").mkdir()
    killed = tmp_path / "bin" / "ckptcheck"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    ended, said, outputs, summary, _ = run("verify", tmp_path)
    assert (ended, outputs["exit-code"]) == (137, "137")
    assert said == "::error::ckptcheck ended with exit code 137 and left no report: see the log\n"
    assert summary == "## A name\n\nNo verdict: exit code 137, see the log.\n"


def test_what_the_action_adds_stands_before_two_dashes(run, tmp_path):
    (tmp_path / "other.toml").write_text('select = ["CK1"]')
    shutil.copy(SAMPLES / "02_torch_edge" / "bitflip.pt", tmp_path / "a b.pt")
    ended, _, _, _, reports = run("check -- 'a b.pt'", tmp_path, "other.toml")
    assert ended == 1
    assert {one["code"] for one in json.loads((reports / "result.json").read_text())["findings"]} == {"CK102"}


def test_no_script_has_an_expression_in_it_that_a_pull_request_could_fill(action):
    assert scripts(action)
    assert not any("${{" in one for one in scripts(action))


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_scripts_are_clean(action):
    for one in scripts(action):
        done = subprocess.run(["shellcheck", "-s", "bash", "-"], input=one, capture_output=True, text=True, check=False)
        assert done.stdout == ""


def test_the_action_installs_what_came_with_it(action):
    (step,) = (one for one in action["runs"]["steps"] if one.get("id") == "install")
    there = step["env"]["CKPTCHECK_HOME"].replace("${{ github.action_path }}", str(ROOT / ACTION))
    assert (Path(there) / "pyproject.toml").samefile(ROOT / "pyproject.toml")


def test_every_input_is_used_and_every_one_used_is_there(action):
    text = (ROOT / ACTION / "action.yml").read_text(encoding="utf-8")
    assert {name for name in action["inputs"] if f"inputs.{name}" in text} == set(action["inputs"])
    assert text.count("inputs.") == sum(text.count(f"inputs.{name} ") for name in action["inputs"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_workflows_ask_for_what_there_is(path, action):
    asked = 0
    for job in read(path)["jobs"].values():
        rows = [{"target": one} for one in job.get("strategy", {}).get("matrix", {}).get("target", [])] or [{}]
        for step in job["steps"]:
            if step.get("uses") != f"./{ACTION}":
                continue
            assert set(step["with"]) <= set(action["inputs"])
            for row in rows:
                args = step["with"]["args"]
                for name, value in row.items():
                    args = args.replace(f"${{{{ matrix.{name} }}}}", value)
                words = shlex.split(args)
                assert all((ROOT / word).is_file() for word in words if word.endswith(".py"))
                outcome = CliRunner().invoke(door, [*words, "--help"])
                assert outcome.exit_code == 0, outcome.output
                asked += 1
    assert asked


def test_there_is_a_workflow_for_pull_requests_and_one_for_the_night():
    triggers = {path.stem: set(read(path)[True]) for path in WORKFLOWS}  # YAML takes `on` for a truth value
    assert "pull_request" in triggers["pull-request"]
    assert "schedule" in triggers["nightly"]

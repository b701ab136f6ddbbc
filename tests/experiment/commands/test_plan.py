"""Whole experiments on a real script, recorded: which runs are made, from which folder, and what stays of them."""

import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch

from ckptcheck.errors import RunFailedError, UsageError
from ckptcheck.experiment.commands.plan import CommandExperiment, CommandSettings

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "fixtures" / "scripts" / "train.py"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working folder with the script; temporary folders are made below `tmp_path`."""
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(SCRIPT, folder)
    (folder / "data.txt").write_text("data")
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return folder


def python(rest: str) -> str:
    return f"{sys.executable} train.py --steps 6 --save-every 2 {rest}"


def settings(project: Path, run: str, resume: str, **more: object) -> CommandSettings:
    return CommandSettings(run=python(run), resume=python(resume), folder=project, **more)


def left(project: Path) -> list[Path]:
    return sorted(one.relative_to(project) for one in project.rglob("*"))


def test_the_folder_is_copied_as_it_stood_after_the_step(project, tmp_path):
    before = left(project)
    asked = settings(project, "--out {dir}", "--out {dir} --resume {ckpt}", resume_at=4, steps=5)
    with CommandExperiment(asked) as experiment:
        (reference,) = experiment.whole(repeats=0)
        assert (reference.name, reference.status, reference.exit_code) == ("reference", "stopped", 0)
        assert reference.traces[0].steps == [1, 2, 3, 4, 5]
        assert (experiment.source, experiment.resume_step) == ("reference", 4)
        found = experiment.found()
        assert found is not None
        assert found.step == 4
        assert torch.load(found.path, weights_only=True)["step"] == 4
        resumed = experiment.resumed()
        assert (resumed.status, resumed.traces[0].steps) == ("stopped", [1])
        assert resumed.output == reference.output, "paths in a checkpoint stay right"
        assert resumed.words[-1] == str(resumed.output / "last.pt")
        assert experiment.environment["WANDB_MODE"] == "offline"
        assert resumed.traces[0].header["flags"]["num_threads"] == reference.traces[0].header["flags"]["num_threads"]
    assert left(project) == before, "the working folder stays the user's"
    assert not list((tmp_path / "temporary").iterdir())


def test_without_a_folder_and_a_step_runs_have_their_own_copy_and_the_step_is_found(project, tmp_path):
    before = left(project)
    asked = settings(project, "", "--resume out/last.pt --forget rng", jobs=1)
    with CommandExperiment(asked) as experiment:
        reference, repeat = experiment.whole(repeats=0)
        assert (reference.status, repeat.status) == ("ended", "ended")
        assert (experiment.source, experiment.resume_step) == ("repeat", 2)
        assert sorted(one.name for one in repeat.output.iterdir()) == ["data.txt", "out", "train.py"]
        resumed = experiment.resumed()
        assert resumed.status == "ended", resumed.last_lines
        assert resumed.traces[0].steps == [1, 2, 3, 4]
        assert "OMP_NUM_THREADS" not in experiment.environment
        folders = [experiment.output_of(one) for one in (reference, repeat, resumed)]
        assert [torch.load(one / "out" / "last.pt", weights_only=True)["step"] for one in folders] == [6, 6, 6]
        assert (folders[1].name, folders[2]) == ("after", repeat.output)
        assert experiment.last_changes(reference)["out/last.pt"] == 6
        assert experiment.last_changes(resumed)["out/last.pt"] == 4, "as it counts itself"
    assert left(project) == before
    assert not list((tmp_path / "temporary").iterdir())


def test_what_an_interrupted_run_left_is_found(project):
    asked = settings(project, "--out {dir}", "--out {dir} --resume {ckpt}", interrupt=(signal.SIGTERM, 3))
    with CommandExperiment(asked) as experiment:
        assert [one.status for one in experiment.whole(repeats=0)] == ["ended"]
        interrupted = experiment.interrupted()
        assert (interrupted.status, interrupted.exit_code) == ("failed", 3)
        assert (experiment.source, experiment.resume_step) == ("interrupted", 3)
        found = experiment.found()
        assert found is not None
        # The signal comes when step 4 begins; the script looks for it at the end of a step.
        assert torch.load(found.path, weights_only=True)["step"] == 4


UNUSABLE = {
    "--resume with {dir} alone": {"run": "a", "resume": "b {dir}"},
    "--share": {"run": "a {dir}", "resume": "b", "shared": ("data",)},
    "step 0": {"run": "a", "resume": "b", "resume_at": 0},
    "step 5": {"run": "a", "resume": "b", "resume_at": 5, "steps": 5},
    "--steps 1": {"run": "a", "resume": "b", "steps": 1},
    "--interrupt": {"run": "a", "resume": "b", "interrupt": (15, 3), "resume_at": 3},
    "{ckpt}": {"run": "a {ckpt}", "resume": "b"},
    "no folder": {"run": "a", "resume": "b", "folder": Path("/no/such/folder")},
    "push_to_hub": {"run": "a --push_to_hub", "resume": "b"},
}


@pytest.mark.parametrize("reason", UNUSABLE)
def test_what_cannot_be_done_is_refused_before_anything_is_started(reason, project, tmp_path):
    with pytest.raises(UsageError) as refused:
        CommandExperiment(CommandSettings(**{"folder": project, **UNUSABLE[reason]}))
    assert reason.split()[0] in str(refused.value)
    assert not list((tmp_path / "temporary").iterdir())


FAILING = {
    "no-such-command": "the reference run cannot start: there is no command 'no-such-command'",
    f"{sys.executable} -S -c 'print(1)'": "the reference run imported no torch",
    f"{sys.executable} -S -c 'raise SystemExit(4)'": "the reference run failed: it left with exit code 4",
}


@pytest.mark.parametrize("command", FAILING)
def test_a_reference_that_fails_ends_the_experiment(command, project, tmp_path):
    asked = CommandSettings(run=command, resume=command, folder=project, resume_at=1)
    with pytest.raises(RunFailedError) as refused, CommandExperiment(asked) as experiment:
        experiment.whole(repeats=1)
    assert str(refused.value).startswith(FAILING[command])
    assert not list((tmp_path / "temporary").iterdir())


def test_a_command_that_imports_torch_and_never_steps_says_so(project):
    command = f"{sys.executable} -c 'import torch'"
    with (
        pytest.raises(RunFailedError, match="the reference run trained no step"),
        CommandExperiment(CommandSettings(command, command, folder=project)) as experiment,
    ):
        experiment.whole(repeats=1)

"""`git diff` and `git difftool` with the set-up that the README shows."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
COMMAND = f'"{sys.executable}" -m ckptcheck'

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PYTHONPATH": str(ROOT)}
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    environment = os.environ | settings | dict.fromkeys(names, "someone")
    return subprocess.run(
        ["git", *arguments], cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit of a checkpoint, and one bit of it changed in the working tree."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "diff.ckptcheck.textconv", f"{COMMAND} inspect --textconv")
    (tmp_path / ".gitattributes").write_text("*.pt diff=ckptcheck\n")
    model = {"fc.weight": torch.arange(6.0).reshape(2, 3), "fc.bias": torch.zeros(2)}
    torch.save({"model": model, "epoch": 3}, tmp_path / "last.pt")
    git(tmp_path, "add", ".")
    assert git(tmp_path, "commit", "-q", "-m", "first").returncode == 0
    model["fc.bias"][1] = -0.0
    torch.save({"model": model, "epoch": 4}, tmp_path / "last.pt")
    return tmp_path


def test_git_diff_shows_the_lines_of_what_changed(repository):
    done = git(repository, "diff", "--no-color", "--unified=0")
    assert done.returncode == 0, done.stderr
    changed = [line for line in done.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert [line.partition(":")[0] for line in changed] == [
        "-model fc.bias", "+model fc.bias", "-progress epoch", "+progress epoch",
    ]  # fmt: skip
    assert changed[2:] == ["-progress epoch: 3", "+progress epoch: 4"]


def test_git_difftool_compares_in_full(repository):
    done = git(repository, "difftool", "-y", "-x", f"{COMMAND} diff", "--", "last.pt")
    assert "fc.bias: 1 of 2 differ, first at (1)" in done.stdout
    assert "epoch: 3 -> 4" in done.stdout


def test_a_checkpoint_that_is_new_is_told_in_one_line(repository):
    torch.save({"w": torch.zeros(1)}, repository / "new.pt")
    git(repository, "add", "-N", "new.pt")
    done = git(repository, "difftool", "-y", "-x", f"{COMMAND} diff", "--", "new.pt")
    assert done.stderr.startswith("ckptcheck: error: ")
    assert "Traceback" not in done.stderr


def test_a_damaged_file_is_one_line_and_git_goes_on(repository):
    git(repository, "commit", "-q", "-a", "-m", "second")
    path = repository / "last.pt"
    path.write_bytes(path.read_bytes()[:-100])
    git(repository, "commit", "-q", "-a", "-m", "third")
    torch.save({"model": {"fc.bias": torch.ones(2)}, "epoch": 5}, path)
    git(repository, "commit", "-q", "-a", "-m", "fourth")
    done = git(repository, "log", "-p", "--no-color", "--unified=0", "--", "last.pt")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told = [line for line in done.stdout.splitlines() if "unreadable" in line]
    said = "unreadable: begins as a zip archive and has no directory at its end: cut short, take another copy"
    assert told == [f"-{said}", f"+{said}"]
    assert "+progress epoch: 5" in done.stdout
    assert "+progress epoch: 3" in done.stdout

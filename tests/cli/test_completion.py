"""Completion in bash, with the script that the README has it evaluate."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptcheck.cli.completion import VARIABLE
from ckptcheck.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
ASKED = """
compopt() { COMPREPLY+=(compopt "$@"); }
asked() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _ckptcheck_completion ckptcheck
    local IFS=' '
    echo "${COMPREPLY[*]}"
}
eval "$(_CKPTCHECK_COMPLETE=bash_source ckptcheck)"
"""
LINES = {
    "ckptcheck ''": " ".join(COMMANDS),
    "ckptcheck verify --re": "--resume --resume-at --resume-device --repeats --require --report",
    "ckptcheck verify --policy ''": "exact state-exact",
    "ckptcheck check c --for r": "resume release",
    "ckptcheck check c --format j": "json junit",
    "ckptcheck explain CK40": "CK401 CK402 CK403 CK404 CK405 CK406",
    "ckptcheck verify my": "compopt -o default",
    "ckptcheck check c --target my": "compopt -o default",
    "ckptcheck inspect c": "compopt -o default",
    "ckptcheck nonsense x": "",
}


@pytest.fixture(scope="module")
def completed(tmp_path_factory) -> dict[str, str]:
    """What bash completes of each line, in one shell, with our command first on its path."""
    place = tmp_path_factory.mktemp("shell")
    command = place / "ckptcheck"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ckptcheck "$@"\n')
    command.chmod(0o755)
    script = ASKED + "".join(f"asked {line}\n" for line in LINES)
    path = os.pathsep.join([str(place), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=place, env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return dict(zip(LINES, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("line", LINES)
def test_bash_completes_commands_options_values_and_files(completed, line):
    assert completed[line] == LINES[line]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_their_script(shell):
    done = subprocess.run([sys.executable, "-m", "ckptcheck"], cwd=ROOT, env=os.environ | {VARIABLE: f"{shell}_source"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0
    assert f"{VARIABLE}={shell}_complete" in done.stdout


def test_an_answer_imports_nothing_heavy():
    told = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    told += "from ckptcheck.cli.main import main; main()"
    asked = {VARIABLE: "bash_complete", "COMP_WORDS": "ckptcheck verify --re", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, env=os.environ | asked, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert done.stdout.startswith("plain,--resume\n")
    assert {"torch", "numpy", "rich"}.isdisjoint(done.stderr.split())

"""Ctrl-C in each phase of a verify: no process stays, no temporary folder, no half file, and the exit code is 130."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TARGET = """
import os, time
from pathlib import Path
import torch
import ckptcheck

def here(phase):
    if os.environ["PHASE"] == phase:
        Path(os.environ["REACHED"]).touch()
        time.sleep(300)

here("import")

def build(ctx):
    here("build")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loaded = []

    def step(s):
        here("resumed step" if loaded else "step")
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    def save(path):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        here("save")

    def load(path):
        here("load")
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loaded.append(path)

    return ckptcheck.Run(model=model, optimizer=optimizer, step=step, save=save, load=load)
"""
PAUSED = """
import importlib, os, sys, time
from pathlib import Path
module, _, name = os.environ["PAUSE"].partition(":")
room = importlib.import_module(module)

def waits(*arguments, **more):
    Path(os.environ["REACHED"]).touch()
    time.sleep(300)

setattr(room, name, waits)
from ckptcheck.cli.main import main
main()
"""
OF_TORCH = "torchinductor_"
"""A cache that torch lays out in the temporary folder when it makes its first optimizer."""
IN_RUNS = ("import", "build", "step", "save", "load", "resumed step")
IN_OURS = {"judging": "ckptcheck.rules.runs.judge:judge", "rendering": "ckptcheck.reports.json:document"}


def interrupted(tmp_path, phase, start, everyone, **more):
    """Start a verify, send SIGINT when it has come to the phase, and return the ended process and its stderr."""
    target, spare, out = tmp_path / "target.py", tmp_path / "spare", tmp_path / "out"
    target.write_text(TARGET)
    spare.mkdir()
    out.mkdir()
    reached = tmp_path / "reached"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PHASE": phase, "REACHED": str(reached),
                   "TMPDIR": str(spare), **more}  # fmt: skip
    command = [*start, "verify", str(target), "--steps", "2", "--quick", "--report", f"json={out / 'result.json'}"]
    process = subprocess.Popen(
        command, env=environment, start_new_session=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        until = time.monotonic() + 120
        while not reached.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        if everyone:  # as a terminal does
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    left = [one.name for one in (*spare.iterdir(), *out.iterdir()) if not one.name.startswith(OF_TORCH)]
    return process.returncode, said, left, alive(str(reached))


def alive(mark):
    """Processes that have the mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in entry.read_bytes():
                found.append((entry.parent / "cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("place", range(len(IN_RUNS)), ids=IN_RUNS)
def test_ctrl_c_in_a_run_leaves_nothing(tmp_path, place):
    start = [sys.executable, "-m", "ckptcheck"]
    code, said, left, running = interrupted(tmp_path, IN_RUNS[place], start, everyone=place % 2 == 0)
    assert (code, left, running) == (130, [], [])
    assert said.splitlines()[-1] == "ckptcheck: interrupted"
    assert "Traceback" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("phase", IN_OURS)
def test_ctrl_c_after_the_runs_leaves_nothing(tmp_path, phase):
    start = [sys.executable, "-c", PAUSED]
    code, said, left, running = interrupted(tmp_path, "none", start, everyone=True, PAUSE=IN_OURS[phase])
    assert (code, said, left, running) == (130, "ckptcheck: interrupted\n", [], [])

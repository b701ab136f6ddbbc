"""Recorded runs of scripts in forks of one process that has the frameworks imported: a second each instead of ten.

Started as `python -m tests.frameworks.forked_scripts PRELOAD...`. Each line of its input is a JSON list of jobs, which
it runs two at a time, and answers with their exit codes. Forks share a hash seed, so that they serve these tests only.
"""

import atexit
import importlib
import json
import os
import random
import runpy
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptcheck.trace.script.orders import VARIABLE, Orders

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "fixtures" / "scripts"
AT_ONCE = 2


@dataclass(frozen=True)
class Job:
    """One run of a script of fixtures/scripts, recorded into the folder `trace`."""

    script: str
    arguments: tuple[str, ...]
    trace: Path


class Server:
    """The process that forks; a context manager."""

    def __init__(self, folder: Path, preload: Sequence[str]) -> None:
        self._folder = folder
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", __spec__.name, *preload],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env=environment, text=True,
        )  # fmt: skip

    def run(self, jobs: Sequence[Job]) -> None:
        """Run jobs that do not depend on each other; an AssertionError with the log of one that fails."""
        told = []
        for job in jobs:
            job.trace.mkdir()
            orders = job.trace.with_suffix(".json")
            orders.write_text(Orders(traces=job.trace).to_json())
            told.append({"script": str(SCRIPTS / job.script), "arguments": job.arguments, "orders": str(orders),
                         "log": str(job.trace.with_suffix(".log"))})  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        for job, code in zip(jobs, json.loads(self._process.stdout.readline()), strict=True):
            assert code == 0, job.trace.with_suffix(".log").read_text()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def serve(preload: Sequence[str]) -> None:
    """Answer each line of the input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in preload:
        importlib.import_module(name)
    for line in sys.stdin:
        waiting: list[dict[str, Any]] = json.loads(line)
        running: dict[int, int] = {}
        codes = [1] * len(waiting)
        place = 0
        while place < len(waiting) or running:
            while place < len(waiting) and len(running) < AT_ONCE:
                running[_start(waiting[place])] = place
                place += 1
            pid, status = os.wait()
            codes[running.pop(pid)] = os.waitstatus_to_exitcode(status)
        answers.write(json.dumps(codes) + "\n")
        answers.flush()


def _start(job: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ[VARIABLE] = job["orders"]
    sys.argv = [job["script"], *job["arguments"]]
    random.seed()
    code = 1
    try:
        importlib.import_module("numpy").random.seed()
        importlib.import_module("ckptcheck.trace.script.start").start()
        runpy.run_path(job["script"], run_name="__main__")
        atexit._run_exitfuncs()
        code = 0
    except BaseException:  # noqa: BLE001 - whatever it is, this process ends below, and says nothing by itself
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1:])

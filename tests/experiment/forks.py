"""Workers forked from a server that has torch imported: bulk tests at a fiftieth of a fresh start's cost.

Forks share a hash seed and an address layout, which hides some faults; so they serve tests only, and the tests
of what a user sees start fresh interpreters. The generators that a fresh interpreter seeds from the system are
seeded anew in each fork.
"""

import importlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.forkserver import ensure_running
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any

SERVER = multiprocessing.get_context("forkserver")
ROOT = Path(__file__).resolve().parents[2]
PRELOADED = [
    "torch",
    "numpy.random",
    "torch.utils.data",
    "torch.utils.serialization.config",
    "torch._dynamo",
    "torch.profiler._cupti_monitor",
    "encodings.latin_1",
    "sklearn.datasets",
    "ckptcheck.experiment.overlay",
    "ckptcheck.experiment.recording",
    "ckptcheck.experiment.target",
    "ckptcheck.experiment.worker",
    "ckptcheck.store.load",
    "ckptcheck.store.save",
    "ckptcheck.verbs",
    "xxhash",
]
"""Whatever a worker imports, but for its target: an import costs a fork more than a step of training."""
OF_THE_TESTS = ["tests.catalogue.running", "tests.catalogue.table", "tests.experiment.frozen"]


class Forked:
    """A forked worker, with what a worker needs of `subprocess.Popen`."""

    def __init__(self, process: Any) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("fork", timeout or 0)
        return self._process.exitcode


def serve() -> None:
    """Start the server, if it does not run, with what the forks need imported: one for all tests of a process."""
    SERVER.set_forkserver_preload([*PRELOADED, *OF_THE_TESTS])
    import pytest  # here, since each fork imports this module

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # the server gets its first path from nowhere else
        ensure_running()


def start_forked(
    module: str, order: Path, pipes: tuple[int, int], log: IO[bytes], environment: Mapping[str, str]
) -> Forked:
    """Start a job in a fork of the server, in a session of its own."""
    descriptors = [_Handed(number) for number in (*pipes, log.fileno())]
    process = SERVER.Process(target=_child, args=(module, str(order), descriptors, dict(environment), str(Path.cwd())))
    process.start()
    return Forked(process)


class _Handed:
    """A descriptor that travels with the order to fork: no copy stays here if the fork is ended before it begins."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (DupFd(self._number),)


def _received(handed: Any) -> int:
    return handed.detach()


def _child(module: str, order: str, descriptors: list[int], environment: dict[str, str], folder: str) -> None:
    os.setsid()
    events, acks, log = descriptors
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    import random

    import numpy
    import torch

    random.seed()
    numpy.random.seed()
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
    code = importlib.import_module(module).main([order, str(events), str(acks)])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

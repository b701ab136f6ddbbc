"""A process with torch and pytest imported that forks for each mutant: a mutant costs what its tests cost.

Only modules that no mutant touches are imported before the fork. Orders come line by line on stdin as JSON:
`{"files", "tests", "limit_s", "log", "map"}`; answers go to stdout: `{"code", "seconds", "timed_out"}`. With `--bare`
nothing is imported beforehand, plugins neither.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from multiprocessing import forkserver, util
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import get_config

PRELOADED = (
    "torch", "torch.utils.data", "torch._dynamo", "numpy", "numpy.random", "numpy.testing", "hypothesis",
    "hypothesis.extra.numpy", "_hypothesis_pytestplugin", "click.testing", "rich.console", "rich.table", "xxhash",
    "safetensors.torch", "sqlite3", "sklearn.datasets",
)  # fmt: skip
OPTIONS = (
    "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist",
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
POLL_S = 0.01
TIMED_OUT = -1
PATIENCE = 6
"""The limit is one of processor time; of wall time so many times as much, as others may use the machine too."""


class Chosen:
    """Of the collected tests only the wanted ones, in the wanted order; a test that is no longer there is left out."""

    def __init__(self, wanted: list[str]) -> None:
        self._rank = {name: place for place, name in enumerate(wanted)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self._rank), key=lambda one: self._rank[one.nodeid])


class Mapping:
    """Writes which statements each test ran, how long it took and whether it passed."""

    def __init__(self, marks: str, out: str) -> None:
        self._marks, self._out = Path(marks), Path(out)
        self._found: dict[str, Any] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        size = self._marks.stat().st_size
        with self._marks.open("r+b") as file:
            file.write(bytes(size))
        began = time.monotonic()
        self._found[item.nodeid] = one = {"passed": True, "seconds": 0.0, "seen": []}
        yield
        one["seconds"] = round(time.monotonic() - began, 3)
        one["seen"] = [place for place, mark in enumerate(self._marks.read_bytes()) if mark]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or report.skipped:
            self._found[report.nodeid]["passed"] = False

    def pytest_sessionfinish(self) -> None:
        self._out.write_text(json.dumps(self._found))


def main() -> None:
    """Serve orders until stdin ends."""
    get_config()  # imports what pytest is made of
    if "--bare" in sys.argv:
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    else:
        for name in PRELOADED:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what a fork never touches is never copied
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answer = _served(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _served(order: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _run(order)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        spent = time.monotonic() - began
        if ended:
            _end_group(child)
            code = os.waitstatus_to_exitcode(status)
            return {"code": code, "seconds": round(spent, 3), "timed_out": code == -signal.SIGXCPU}
        if spent > PATIENCE * order["limit_s"]:
            _end_group(child)
            os.waitpid(child, 0)
            return {"code": TIMED_OUT, "seconds": round(spent, 3), "timed_out": True}
        time.sleep(POLL_S)


def _end_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _run(order: dict[str, Any]) -> None:
    os.setsid()
    limit_s = math.ceil(order["limit_s"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    plugins: list[object] = []
    options = list(OPTIONS)
    if order.get("map"):
        os.environ["CKPTCHECK_SEEN"] = order["map"]["marks"]
        plugins.append(Mapping(order["map"]["marks"], order["map"]["out"]))
        options.remove("-x")
    if order.get("tests") is not None:
        plugins.append(Chosen(order["tests"]))
    if hypothesis := sys.modules.get("hypothesis"):  # the first failure will do, it need not be the least
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", phases=phases, database=None)
        hypothesis.settings.load_profile("mutants")
        options.append("--hypothesis-seed=0")
    _fork_server()
    code = pytest.main([*options, *order["files"]], plugins)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))


def _fork_server() -> None:
    """Make a fork of this process the server that multiprocessing would start as a fresh interpreter."""
    address = os.path.join(util.get_temp_dir(), "server")  # noqa: PTH118
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    alive_r, alive_w = os.pipe()
    server = os.fork()
    if server:
        listener.close()
        os.close(alive_r)
        os.set_inheritable(alive_w, False)
        own = forkserver._forkserver  # type: ignore[attr-defined]
        own._forkserver_address, own._forkserver_alive_fd, own._forkserver_pid = address, alive_w, server
        return
    os.close(alive_w)
    asked, _, _ = select.select([listener.fileno(), alive_r], [], [])
    if alive_r in asked:
        os._exit(0)
    from tests.experiment import forks

    for name in (*forks.PRELOADED, *forks.OF_THE_TESTS):
        importlib.import_module(name)
    forkserver.main(listener.detach(), alive_r, [], sys_path=list(sys.path))
    os._exit(0)


if __name__ == "__main__":
    main()

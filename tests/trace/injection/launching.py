"""Commands run as they are and recorded, and what must be equal between the two."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptcheck.trace.file import SUFFIX, Trace
from ckptcheck.trace.injection import pth
from ckptcheck.trace.injection.environment import recorded
from ckptcheck.trace.script.orders import VARIABLE, Orders

TIMEOUT_S = 900
NOT_PASSED_ON = (VARIABLE, "PYTHONPATH", "RANK", "LOCAL_RANK", "WORLD_SIZE", "PYTHONHASHSEED", "COVERAGE_PROCESS_START")


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left: its exit code and its lines, sorted, as ranks print in no order."""

    code: int
    out: list[bytes]
    err: list[bytes]


@dataclass(frozen=True, slots=True)
class Left:
    """One trace that a command left.

    `steps` is how many whole steps it holds; `clean` whether the process came to its end.
    """

    file: str
    rank: int
    world: int
    steps: int
    clean: bool
    header: Mapping[str, Any]


def environment(**more: str) -> dict[str, str]:
    """Ours without what would change a child, one thread, and this interpreter first on the path."""
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept | {"PATH": path, "OMP_NUM_THREADS": "1"} | more


def run(command: Sequence[str], folder: Path, given: Mapping[str, str]) -> Said:
    """Run a command in a folder."""
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, timeout=TIMEOUT_S, check=False)
    return Said(done.returncode, sorted(done.stdout.splitlines()), sorted(done.stderr.splitlines()))


def record(
    command: Sequence[str], folder: Path, traces: Path, given: Mapping[str, str], python: str | None = None
) -> tuple[Said, list[Left]]:
    """Run a command recorded, with a .pth in the site-packages of `python` where it is given."""
    orders = recorded(Orders(traces=traces, command=tuple(command)), traces.with_suffix(".json"), given)
    place: AbstractContextManager[Any] = pth.placed(python) if python else nullcontext()
    with place:
        said = run(command, folder, orders)
    return said, [left(file) for file in sorted(traces.glob(f"*{SUFFIX}"))]


def left(file: Path) -> Left:
    """What one trace file says of its process."""
    trace = Trace(file)
    header = trace.header
    found = Left(file.name, header["rank"], header["world_size"], len(trace.steps), trace.ended, header)
    trace.close()
    return found

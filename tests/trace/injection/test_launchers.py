"""The launcher table: which processes of a command are recorded, and that nobody notices."""

import re
import sysconfig
import venv
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ckptcheck.state.digest import LINEAR_128, XXH3_128
from tests.trace.injection.launching import Left, Said, environment, record, run
from tests.trace.injection.scripts import STEPS, written

PLAIN = ("python", "plain.py")
ALONE = ("rank-0", 0, 1)
AGAIN = ("rank-0.pid-PID", 0, 1)
RANKS = ("torchrun", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "ranks.py")
REACHED_BY_PTH = """
python -E plain.py
python -I plain.py
PYTHONPATH=other python plain.py
env -i "$(command -v python)" plain.py
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A command, and what it must leave.

    `traces` are (file, rank, world size), where PID stands for any number; each has `steps` whole steps. `like` is
    what says the same unrecorded, and how often it does; None for the command itself. `pth`: with a .pth.
    """

    command: tuple[str, ...]
    traces: tuple[tuple[str, int, int], ...] = ()
    steps: int = STEPS
    like: tuple[tuple[str, ...], int] | None = None
    variables: dict[str, str] = field(default_factory=dict)
    pth: bool = False
    digest: str = XXH3_128


TABLE = {
    "torchrun, two ranks that have no RANK any more": Row(RANKS, (ALONE, ("rank-1", 1, 2))),
    "python x.py, python -m pkg, a console script, from a .sh file, from bash -c": Row(
        ("bash", "-c", "exec sh ./all.sh"), (ALONE, AGAIN, AGAIN), like=(PLAIN, 3)
    ),
    "python -E without a .pth": Row(("python", "-E", "plain.py"), like=(PLAIN, 1)),
    "python -E, python -I, PYTHONPATH replaced, and env -i, with a .pth": Row(
        ("sh", "-c", REACHED_BY_PTH), (ALONE, AGAIN, AGAIN), like=(PLAIN, 4), pth=True
    ),
    "python -S": Row(("python", "-S", "without_torch.py"), pth=True),
    "no torch at all": Row(("python", "-c", "import sys; print(sys.argv, sorted(sys.modules), sys.path)", "x")),
    "trainers by multiprocessing, forked and spawned, beside one that makes no update": Row(
        ("python", "processes.py"), (ALONE, AGAIN, AGAIN)
    ),
    "two data loaders of two workers, forked and spawned": Row(("python", "workers.py"), (ALONE,), steps=6),
    "neither xxhash nor numpy, and a package of the script's own named ckptcheck": Row(
        ("python", "stranger.py"), (ALONE,), variables={"PYTHONPATH": "blocked:mine"}, digest=LINEAR_128
    ),
}


@dataclass(frozen=True, slots=True)
class Launched:
    recorded: Said
    traces: list[Left]
    unrecorded: Said


@pytest.fixture(scope="module")
def launched(tmp_path_factory) -> Iterator[dict[str, Future[Launched]]]:
    """Every row, run and recorded, two commands at a time."""
    home = tmp_path_factory.mktemp("launchers")
    folder = written(home / "scripts")
    python = made_environment(home / "environment")
    first = environment(PATH=f"{python.parent}:{environment()['PATH']}")
    with ThreadPoolExecutor(2) as pool:
        plain: dict[tuple[str, ...], Future[Said]] = {}

        def of(number: int, row: Row) -> Launched:
            given = first | row.variables
            said, traces = record(
                row.command, folder, home / f"traces{number}", given, str(python) if row.pth else None
            )
            if row.like is None:
                return Launched(said, traces, run(row.command, folder, given))
            alone = plain[row.like[0]].result()
            times = row.like[1]
            return Launched(said, traces, Said(alone.code, alone.out * times, alone.err * times))

        plain[PLAIN] = pool.submit(run, PLAIN, folder, first)
        yield {name: pool.submit(of, number, row) for number, (name, row) in enumerate(TABLE.items())}


def made_environment(folder: Path) -> Path:
    """The Python of a new environment that sees what ours has: a .pth may be put into it."""
    venv.create(folder)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.parametrize("name", TABLE)
def test_who_trains_is_recorded_and_nobody_notices(launched, name):
    row, found = TABLE[name], launched[name].result()
    assert found.recorded == found.unrecorded
    named = sorted(
        (re.sub(r"\d{2,}", "PID", one.file).removesuffix(".trace"), one.rank, one.world) for one in found.traces
    )
    worlds = {world for _, _, world in row.traces[1:]} or {1}
    assert named == sorted((file, rank, max(worlds)) for file, rank, _ in row.traces)
    assert {(one.steps, one.clean, one.header["digest"]) for one in found.traces} <= {(row.steps, True, row.digest)}

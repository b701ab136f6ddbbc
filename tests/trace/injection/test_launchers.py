"""The launcher table: which processes of a command are recorded, and that nobody notices."""

import contextlib
import io
import re
import sysconfig
import venv
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

from ckptcheck.state.digest import LINEAR_128, XXH3_128
from tests.trace.injection.launching import Left, Said, environment, record, run
from tests.trace.injection.scripts import LOOP, STEPS, written

ALONE = ("rank-0", 0, 1)
AGAIN = ("rank-0.pid-PID", 0, 1)
RANKS = ("torchrun", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "ranks.py")


@dataclass(frozen=True, slots=True)
class Row:
    """A command, and what it must leave.

    `traces` are (file, rank, world size), where PID stands for any number; each has three whole steps. `said` are the
    lines that it prints, in any order, `noted` those on stderr. `pth`: with a .pth.
    """

    command: tuple[str, ...]
    traces: tuple[tuple[str, int, int], ...]
    said: tuple[str, ...]
    noted: tuple[str, ...] = ()
    code: int = 0
    variables: dict[str, str] = field(default_factory=dict)
    pth: bool = False
    digest: str = XXH3_128


def loss_of(*arguments: Any) -> str:
    """What the loop of the scripts prints, run in this process, which records nothing."""
    names: dict[str, Any] = {}
    exec(LOOP, names)
    with contextlib.redirect_stdout(io.StringIO()) as out, torch.random.fork_rng():
        names["train"](*arguments)
    return out.getvalue().strip()


def losses_of_ranks() -> tuple[str, ...]:
    """What two ranks print that average their gradients."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = [model(torch.full((3, 4), float(rank + step))).square().mean() for rank in (0, 1)]
        (losses[0] / 2).backward()
        (losses[1] / 2).backward()
        optimizer.step()
    return tuple(f"rank {rank} {loss.item()}" for rank, loss in enumerate(losses))


NUMBERS = [torch.full((4,), float(number)) for number in range(6)]
BATCHES = [torch.stack(NUMBERS[place : place + 2]) for place in (0, 2, 4)]
PLAIN = loss_of()
TABLE = {
    "torchrun, two ranks that have no RANK any more": Row(RANKS, (ALONE, ("rank-1", 1, 2)), losses_of_ranks()),
    "python x.py, python -m pkg, a console script, from a .sh file, from bash -c; neither xxhash nor numpy, and a "
    "package of the script's own named ckptcheck": Row(
        ("bash", "-c", "exec sh ./all.sh"), (ALONE, AGAIN, AGAIN), (PLAIN, "1 ['ckptcheck'] False", PLAIN, PLAIN),
        noted=("note", "note"), code=5, digest=LINEAR_128,
        variables={"PYTHONPATH": "blocked:mine", "PYTHONWARNINGS": "ignore"},  # torch warns that there is no numpy
    ),
    "python -I, and PYTHONPATH replaced, with a .pth": Row(
        ("sh", "-c", "python -I plain.py\nPYTHONPATH=other python plain.py"), (ALONE, AGAIN), (PLAIN, PLAIN),
        noted=("note", "note"), code=5, pth=True,
    ),
    "trainers by multiprocessing, forked and spawned, and one that makes no update; then the workers of two data "
    "loaders, forked and spawned": Row(
        ("python", "processes.py"), (ALONE, AGAIN, AGAIN, AGAIN),
        (loss_of(1), loss_of(2), loss_of(3), loss_of(0, BATCHES)),
    ),
}  # fmt: skip
UNREACHED = {
    # a command in which nothing can be recorded, and whether there is a .pth
    "no torch at all": (("python", "-c", "import sys; print(sys.argv, sorted(sys.modules), sys.path)", "x"), False),
    "python -S": (("python", "-S", "without_torch.py"), True),
    "python -E without a .pth": (("python", "-E", "waits.py"), False),
    "env -i, which takes the orders away": (("sh", "-c", 'env -i "$(command -v python)" waits.py'), True),
}


@dataclass(frozen=True, slots=True)
class Place:
    """The scripts, an environment that finds its own Python first, and that Python."""

    home: Path
    given: dict[str, str]
    python: str

    def record(self, command: tuple[str, ...], *, pth: bool, **more: str) -> tuple[Said, list[Left]]:
        traces = Path(mkdtemp(dir=self.home)) / "traces"
        return record(command, self.home / "scripts", traces, self.given | more, self.python if pth else None)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    home = tmp_path_factory.mktemp("launchers")
    written(home / "scripts")
    python = made_environment(home / "environment")
    return Place(home, environment(PATH=f"{python.parent}:{environment()['PATH']}"), str(python))


@pytest.fixture(scope="module")
def launched(place) -> Iterator[dict[str, Future[tuple[Said, list[Left]]]]]:
    """Every row of the table, recorded, two commands at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {
            name: pool.submit(place.record, row.command, pth=row.pth, **row.variables) for name, row in TABLE.items()
        }


def made_environment(folder: Path) -> Path:
    """The Python of a new environment that sees what ours has: a .pth may be put into it."""
    venv.create(folder)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.parametrize("name", TABLE)
def test_who_trains_is_recorded_and_nobody_notices(launched, name):
    row = TABLE[name]
    said, traces = launched[name].result()
    assert said == Said(row.code, *(sorted(map(str.encode, lines)) for lines in (row.said, row.noted)))
    named = sorted((re.sub(r"\d{2,}", "PID", one.file).removesuffix(".trace"), one.rank, one.world) for one in traces)
    worlds = {world for _, _, world in row.traces[1:]} or {1}
    assert named == sorted((file, rank, max(worlds)) for file, rank, _ in row.traces)
    assert {(one.steps, one.clean, one.header["digest"]) for one in traces} == {(STEPS, True, row.digest)}


@pytest.mark.parametrize("name", UNREACHED)
def test_where_nothing_can_be_recorded_all_is_as_without_us(place, name):
    command, pth = UNREACHED[name]
    said, traces = place.record(command, pth=pth)
    assert said == run(command, place.home / "scripts", place.given)
    assert traces == []

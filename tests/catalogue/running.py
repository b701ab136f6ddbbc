"""Cells of the catalogue as real experiments: a target file, worker processes, a verdict."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch

import ckptcheck
from ckptcheck import verbs
from ckptcheck.errors import CkptcheckError
from ckptcheck.experiment import process
from ckptcheck.finding import Result
from tests.catalogue.fault import CLEAN, SEVERAL, Expected, Fault, Score, combined, score, score_of_clean
from tests.catalogue.spec import Spec
from tests.catalogue.special import make_training
from tests.experiment.forks import serve, start_forked
from tests.reports.keeping import kept

ROOT: Final = Path(__file__).resolve().parents[2]

TARGET: Final = """import sys
sys.path.insert(0, {root!r})
from tests.catalogue.running import planted
def build(ctx):
    return planted({spec!r}, {faults!r}, ctx)
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One training with no fault, one, or several: `faults` are names, none for a clean resume."""

    spec: Spec
    faults: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{' + '.join(self.faults) or 'clean'} in {self.spec}"


def planted(spec: str, faults: list[str], ctx: ckptcheck.Context) -> ckptcheck.Run:
    """The run of a cell, in a worker."""
    from tests.catalogue.table import FAULTS

    training = make_training(Spec.from_json(spec), ctx)
    for name in faults:
        FAULTS[name].inject(training)
    return training.run()


def context(workdir: Path | None = None) -> Any:
    """A context for a training that is built outside of an experiment."""
    return SimpleNamespace(device=torch.device("cpu"), seed=0, workdir=workdir or Path(tempfile.gettempdir()))


def expected_of(fault: Fault, spec: Spec) -> Expected:
    """What must be said of a fault in a training; it trains without the fault up to the save to look at it."""
    training = make_training(spec, context())
    for s in range(1, spec.at + 1):
        training.step(s)
    return fault.expect(training)


def verdict_on(cell: Cell, folder: Path, **options: Any) -> Result:
    """`verify` on a cell, whose target file is written into `folder`."""
    path = folder / "cell.py"
    path.write_text(TARGET.format(root=str(ROOT), spec=cell.spec.to_json(), faults=list(cell.faults)))
    asked = {"steps": cell.spec.steps, "resume_at": cell.spec.resume_at, "jobs": 1} | options
    return kept(verbs.verify(str(path), **asked))


def judged(cell: Cell, folder: Path, **options: Any) -> Score:
    """The verdict on a cell, held against what is expected of its faults, or of a clean resume."""
    from tests.catalogue.table import FAULTS

    if not cell.faults:
        return score_of_clean(str(cell), CLEAN, verdict_on(cell, folder, **options))
    faults = [FAULTS[name] for name in cell.faults]
    expected = combined([expected_of(one, cell.spec) for one in faults], cell.spec)
    family = faults[0].family if len(faults) == 1 else SEVERAL
    return score(str(cell), family, cell.spec, expected, verdict_on(cell, folder, **options))


@contextmanager
def forked_workers() -> Iterator[None]:
    """Start workers as forks of a process that has torch imported, for as long as this lasts."""
    fresh, folder, threads = process.start_fresh, Path.cwd(), torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other cost more than these tensors
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    serve()
    process.start_fresh = start_forked  # type: ignore[assignment]
    try:
        yield
    finally:
        process.start_fresh = fresh
        os.chdir(folder)
        torch.set_num_threads(threads)


def _judged_or_told(cell: Cell, folder: Path) -> Score:
    """A cell that gets no verdict at all is a miss, and the others go on."""
    try:
        return judged(cell, folder)
    except CkptcheckError as error:
        return Score(str(cell), "without a verdict", False, "unknown", False, False, False, str(error))


def judged_all(cells: Sequence[Cell]) -> list[Score]:
    """The verdicts on cells, one after the other, by forked workers; where a fault needs them by fresh ones."""
    from tests.catalogue.table import FAULTS

    scores = []
    with tempfile.TemporaryDirectory() as folder:
        for place, cell in enumerate(cells):
            own = Path(folder) / str(place)
            own.mkdir()
            fresh = any(FAULTS[name].fresh for name in cell.faults)
            with nullcontext() if fresh else forked_workers():
                scores.append(_judged_or_told(cell, own))
    return scores

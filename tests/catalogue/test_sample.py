"""A sample of the catalogue in every run of the tests: every second fault once, some combinations, some clean resumes.

The whole is `python -m tests.catalogue`. The optimizer and the training of a fault move on from fault to fault, so
that all of them are met; faults that need fresh interpreters are left to the whole.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.catalogue.cells import cells_of
from tests.catalogue.clean import clean_cells
from tests.catalogue.combinations import OPEN, combined_cells
from tests.catalogue.fault import CLEAN, Fault
from tests.catalogue.running import Cell, forked_workers, judged
from tests.catalogue.table import FAULTS

CLEAN_IN_SAMPLE = 12
COMBINATIONS_APART = 8
IN_FULL = {CLEAN, "saving", "environment"}
"""Families of which a run that saves nothing, or a second run, decides something; the others are judged without."""

TOGETHER = [one for one in combined_cells() if one.faults not in OPEN]


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[None]:
    with forked_workers():
        yield


@pytest.mark.parametrize("fault", [one for one in FAULTS.values() if not one.fresh][::2], ids=lambda one: one.name)
def test_a_fault_is_found_and_named_in_one_of_its_trainings(fault: Fault, tmp_path: Path) -> None:
    cells = list(cells_of(fault))
    cell = cells[list(FAULTS).index(fault.name) % len(cells)]
    score = judged(cell, tmp_path, quick=fault.family not in IN_FULL)
    assert score.right, f"{score.cell}: {score.got}{score.what_is_off}"


@pytest.mark.parametrize("cell", TOGETHER[::COMBINATIONS_APART], ids=str)
def test_faults_that_come_together_are_all_named(cell: Cell, tmp_path: Path) -> None:
    score = judged(cell, tmp_path)
    assert score.right, f"{score.cell}: {score.got}{score.what_is_off}"


@pytest.mark.parametrize("cell", clean_cells()[:: len(clean_cells()) // CLEAN_IN_SAMPLE], ids=str)
def test_a_clean_resume_of_the_matrix_passes(cell: Cell, tmp_path: Path) -> None:
    score = judged(cell, tmp_path)
    assert score.right, f"{score.cell}: {score.got}"

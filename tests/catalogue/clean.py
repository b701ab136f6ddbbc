"""The clean matrix: legal trainings that must pass, each resumed."""

from tests.catalogue.running import Cell
from tests.catalogue.spec import OPTIMIZERS, SCHEDULES, Spec


def clean_cells() -> list[Cell]:
    """Optimizers x schedules x precision x accumulation x freezing x average x compiling, thinned evenly."""
    return [Cell(Spec(optimizer=optimizer, schedule=schedule)) for optimizer in OPTIMIZERS for schedule in SCHEDULES]

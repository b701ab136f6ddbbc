"""The learning-rate schedule."""

from typing import Final

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import Training

FAMILY: Final = "schedule"


def _not_loaded(training: Training) -> None:
    training.restore_schedule = lambda state: None  # type: ignore[method-assign]


FAULTS: Final = (
    Fault(
        name="schedule-not-loaded",
        why="The load forgets the scheduler.",
        family=FAMILY,
        reports=("sched_missing",),
        inject=_not_loaded,
        expect=lambda training: Expected(("CK602",), says=("offset",)),
        applies=lambda spec: spec.schedule not in ("none", "plateau"),
    ),
)

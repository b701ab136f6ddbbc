"""The optimizer's state: lost, partly lost, rounded, counted otherwise."""

from typing import Final

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.spec import Spec
from tests.catalogue.training import Training

FAMILY: Final = "optimizer state"


def keeps_state(spec: Spec) -> bool:
    """Whether the optimizer keeps any state that an update reads."""
    return spec.optimizer != "SGD"


def _never_loaded(training: Training) -> None:
    training.restore_optimizer = lambda state: None  # type: ignore[method-assign]


def _all_with_state(training: Training) -> tuple[str, ...]:
    held = {id(parameter) for parameter in training.optimizer.state}
    return tuple(name for name, one in training.model.named_parameters() if id(one) in held)


FAULTS: Final = (
    Fault(
        name="state-emptied-in-the-file",
        why="The file keeps the groups and an empty state.",
        family=FAMILY,
        reports=("opt_absent",),
        inject=lambda training: training.before_save.append(lambda saved: saved["optimizer"].update(state={})),
        expect=lambda training: Expected(("CK201",), parameters=_all_with_state(training)),
        applies=keeps_state,
    ),
)

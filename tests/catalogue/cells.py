"""Which cells there are: every fault in several trainings, and the clean matrix."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, Final

from tests.catalogue.fault import Fault
from tests.catalogue.running import Cell
from tests.catalogue.spec import Spec
from tests.catalogue.table import FAULTS

STATEFUL: Final = (
    "AdamW", "SGD-momentum", "RMSprop-momentum", "NAdam", "Adagrad", "Adam-amsgrad", "Adadelta", "RAdam", "Adamax",
    "SGD-nesterov", "Adafactor", "RMSprop", "Rprop", "ASGD", "Adam", "SGD",
)  # fmt: skip
"""Optimizers in the order in which a fault is tried on them."""

OPTIMIZERS_A_FAULT: Final = 5

BACKGROUNDS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"model": "norm"},
    {"model": "tied", "ema": True},
    {"model": "mlp", "window": 2},
    {"model": "norm", "amp": "fp16"},
    {"model": "mlp", "schedule": "warm-cosine", "ema": True},
    {"model": "tied", "amp": "bf16", "groups": 1},
    {"model": "norm", "freeze": "grad", "schedule": "step"},
)
"""What else goes on in a training; a fault's own needs come on top."""


def cells_of(fault: Fault, optimizers: int = OPTIMIZERS_A_FAULT) -> Iterator[Cell]:
    """A fault with several optimizers, each in two trainings of different kinds where it applies."""
    backgrounds = cycle(BACKGROUNDS)
    made = 0
    for optimizer in STATEFUL:
        found = 0
        for _ in BACKGROUNDS:
            spec = replace(Spec(optimizer=optimizer), **{**next(backgrounds), **fault.specs})
            if found < 2 and fault.applies(spec):
                yield Cell(spec, (fault.name,))
                found += 1
            if found == 2:
                break
        made += found > 0
        if made == optimizers:
            return


def fault_cells() -> list[Cell]:
    """Every fault in its trainings."""
    return [cell for fault in FAULTS.values() for cell in cells_of(fault)]

"""The clean matrix: legal trainings of every kind, resumed at two places and a second time in a row; all must pass."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any, Final

from tests.catalogue.making import FUSED, WITHOUT_FOREACH
from tests.catalogue.running import Cell
from tests.catalogue.spec import MODELS, OPTIMIZERS, SCHEDULES, SPECIAL_OPTIMIZERS, Spec

ASIDE: Final[tuple[dict[str, Any], ...]] = (
    {"amp": "none", "window": 1, "ema": False, "freeze": "none"},
    {"amp": "bf16", "window": 2, "ema": True, "freeze": "none"},
    {"amp": "fp16", "window": 1, "ema": True, "freeze": "grad"},
    {"amp": "none", "window": 3, "ema": False, "freeze": "removed"},
    {"amp": "fp16", "window": 2, "ema": False, "freeze": "none"},
    {"amp": "bf16", "window": 1, "ema": False, "freeze": "grad"},
    {"amp": "none", "window": 2, "ema": True, "freeze": "removed"},
)
"""What goes with an optimizer and a schedule: precision, accumulation, an average, freezing."""
POINTS: Final = ((3, 6), (1, 7), (4, 8), (2, 5))
"""Where to resume: within an epoch, at its end (7), after the first step, before the last one."""
IMPLEMENTATIONS: Final = (None, True, False, "fused")
COMPILED: Final = ("AdamW", "SGD-momentum", "RMSprop", "Adagrad", "NAdam", "Adafactor")


def clean_cells() -> list[Cell]:
    """Every optimizer with every schedule, in two trainings each; then compiled ones and special optimizers."""
    asides, models, points, kinds = cycle(ASIDE), cycle(MODELS), cycle(POINTS), cycle(IMPLEMENTATIONS)
    specs: list[Spec] = []
    for turn in range(2):
        for optimizer in OPTIMIZERS:
            for place, schedule in enumerate(SCHEDULES):
                groups = 1 + (place + turn) % 2
                one = Spec(next(models), optimizer, schedule, groups=groups, steps=9, resume_at=next(points))
                specs.append(replace(one, foreach=next(kinds), **next(asides)))
        next(models), next(points), next(points), next(asides)
    specs += _compiled()
    specs += _special()
    return [Cell(one) for one in specs if _exists(one)]


def _compiled() -> Iterator[Spec]:
    for place, optimizer in enumerate(COMPILED):
        yield Spec(MODELS[place % 3], optimizer, compile=True, ema=bool(place % 2), resume_at=POINTS[place % 4])


def _special() -> Iterator[Spec]:
    points = cycle(POINTS)
    for optimizer in SPECIAL_OPTIMIZERS:
        for schedule in ("none", "cosine", "warm-cosine"):
            yield Spec("tied", optimizer, schedule, groups=1, resume_at=next(points))


def _exists(one: Spec) -> bool:
    """Whether torch has this implementation of the optimizer."""
    if one.foreach == "fused":
        return one.optimizer in FUSED
    return one.foreach is None or one.optimizer not in WITHOUT_FOREACH

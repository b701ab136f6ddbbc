"""The whole catalogue: every fault by its name."""

from typing import Final

from tests.catalogue.fault import Fault
from tests.catalogue.faults import (
    accumulation,
    average,
    binding,
    buffers,
    code,
    counters,
    data,
    environment,
    freezing,
    generators,
    groups,
    legal,
    moments,
    numbers,
    saving,
    scaler,
    schedule,
    schedule_built,
    steps,
    weights,
    wrappers,
)

FAMILIES: Final = (
    moments, counters, numbers, binding, groups, wrappers,
    schedule, schedule_built, generators, data, buffers, scaler, average, accumulation,
    weights, saving, steps, code, environment, freezing, legal,
)  # fmt: skip

FAULTS: Final[dict[str, Fault]] = {one.name: one for family in FAMILIES for one in family.FAULTS}

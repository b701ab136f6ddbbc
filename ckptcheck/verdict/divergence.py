"""How far a resumed run is from its reference: every parameter and state tensor at every compared step, in columns.

A run's part is `{"run", "step", "steps", "tensors", "left_out", "reason"}`. A tensor that differs nowhere has no row.
A row names its tensor (`section`, `parameter`, `key`, `optimizer`, `part`, `numel`), says at which step it differs
`first` and at how many it does (`differs_at`), has its numbers right after the load (`load`, null where it does not
differ there), and a number a step in `max_abs`, `rel_l2`, `max_ulp` and `differing`: for the steps of the run's part,
or for its own `steps` where that is no null. All are 0 where both sides agree. `differing` is null where nothing was
measured, and `not_measured` says why; the others also where they have no meaning, as `rel_l2` where the left side is
zero and `max_ulp` of integers.
"""

import shutil
from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.curve import Column, Curve
from ckptcheck.comparison.decoding import by_component
from ckptcheck.comparison.spread import KINDS, norm_gaps, spread_of
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.experiment.plan import Experiment
from ckptcheck.finding import Json
from ckptcheck.rules.runs.case import Case
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import Item

NUMBERS: Final = ("max_abs", "rel_l2", "max_ulp", "differing")
SHARE_OF_DISK: Final = 4
"""Both runs lay a step out, and leave half of what is free: a run gets this part of it."""
NOT_MEASURED: Final = "no run was made once more to measure it"


def curve_of(experiment: Experiment, left: Trace, right: Trace, whole: TraceDiff) -> Curve:
    """What of two runs is to be measured at the steps that were compared; TraceError as of `spread_of`."""
    spread = spread_of(left, right, whole.steps)
    free_bytes = shutil.disk_usage(experiment.scratch(".")).free
    return Curve(spread, norm_gaps(spread, left, right), free_bytes // SHARE_OF_DISK)


def divergence(case: Case, rank: int | None = None) -> dict[str, Json]:
    """The part of one resumed run that does not go on exactly; `rank` is given where there are several."""
    curve = case.curve
    steps = list(curve.spread.steps) if curve is not None else []
    return {
        "run": case.run if rank is None else f"{case.run}, rank {rank}",
        "step": case.step,
        "steps": [*steps],
        "tensors": list(_rows(case)),
        "left_out": _left_out(curve) if curve is not None else None,
        "reason": None if curve is not None else NOT_MEASURED,
    }


def _rows(case: Case) -> Iterator[dict[str, Json]]:
    loaded = {item: difference for (step, item), difference in case.measured.items() if step == case.step}
    curve = case.curve
    steps = len(curve.spread.steps) if curve is not None else 0
    if curve is not None:
        for place, column in enumerate(curve.columns()):
            row = _named(column.item, by_component(curve.spread.specs[place]).numel)
            row |= {"first": curve.spread.first_of(place), "differs_at": curve.spread.count_of(place)}
            yield row | _numbers_of(column, curve, loaded.pop(column.item, None))
    for item, difference in loaded.items():
        if item.kind in KINDS:
            row = _named(item, difference.numel) | {"first": None, "differs_at": 0, "load": _load(difference)}
            yield row | {"steps": None} | _zeros(difference, steps) | {"not_measured": []}


def _zeros(difference: TensorDifference, steps: int) -> dict[str, Json]:
    """The numbers of a tensor that differs right after the load only."""
    ulp = 0 if difference.max_ulp is not None else None
    return {"max_abs": [0.0] * steps, "rel_l2": [0.0] * steps, "max_ulp": [ulp] * steps, "differing": [0] * steps}


def _named(item: Item, numel: int) -> dict[str, Json]:
    owned = item.kind != "buffer"
    return {
        "section": item.kind,
        "parameter": item.name if owned else None,
        "key": (item.key or None) if owned else item.name,
        "optimizer": item.optimizer if item.optimizer >= 0 else None,
        "part": item.part,
        "numel": numel,
    }


def _numbers_of(column: Column, curve: Curve, loaded: TensorDifference | None) -> dict[str, Json]:
    reasons: dict[str, list[Json]] = {}
    for step, reason in column.reasons.items():
        reasons.setdefault(reason, []).append(step)
    return {
        "load": _load(loaded) if loaded is not None else None,
        "steps": [*column.steps] if column.steps != curve.spread.steps else None,
        "max_abs": [*column.max_abs],
        "rel_l2": [*column.rel_l2],
        "max_ulp": [*column.max_ulp],
        "differing": [*column.differing],
        "not_measured": [{"reason": reason, "steps": steps} for reason, steps in reasons.items()],
    }


def _load(difference: TensorDifference) -> dict[str, Json]:
    return {name: getattr(difference, name) for name in NUMBERS}


def _left_out(curve: Curve) -> dict[str, Json] | None:
    """What is not told of, where that is anything."""
    tensors, steps = len(curve.spread.items), len(curve.spread.steps)
    fewer = tensors - curve.every
    cells = fewer * (steps - len(curve.few_steps))
    if not cells:
        return None
    return {
        "tensors": fewer,
        "numbers": cells,
        "reason": f"{tensors} tensors differ over {steps} steps: the {curve.every} that differ first, and then by how "
        f"far their norms are apart at the end, are told at every step, the others at {len(curve.few_steps)}",
    }

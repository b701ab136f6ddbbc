"""What a result of verify holds beside its findings: the runs, and the divergence step by step."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.experiment.job import Outcome
from ckptcheck.finding import Json
from ckptcheck.rules.runs.case import Case
from ckptcheck.state.stages import LOAD
from ckptcheck.state.training_state import Entry
from ckptcheck.trace.items import Item, Sample

MAX_ROWS = 10_000
"""Rows of a trajectory that a result holds; the first in time are kept, and the result says how many there were."""
NUMBERS = (
    "differing",
    "numel",
    "first_at",
    "max_abs",
    "max_abs_at",
    "rel_l2",
    "max_ulp",
    "median_ulp",
    "sign_flips",
    "nan",
    "inf",
)


def run_rows(outcomes: Iterable[Outcome]) -> list[Json]:
    """One row a process: how it ended and where its time went, in seconds."""
    return [
        {
            "name": one.name,
            "status": one.status,
            "seconds": round(one.total_s, 3),
            "training_s": round(one.training_s, 3),
            "recording_s": round(one.recording_s, 3),
        }
        for one in outcomes
    ]


def trajectory_rows(case: Case, missing: str) -> list[Json]:
    """One row for each differing tensor or value of each step, the load first, in order of time and cause."""
    if case.goes_on_exactly:
        return []
    drawn = case.trajectory.drawn if case.trajectory is not None else None
    loaded: list[_Place] = [
        _Place(case.step, LOAD, item_of(one), one.left, one.right)
        for one in (case.load.entries if case.load is not None else ())
        if one.section != "rng" or drawn is None or one.name in drawn
    ]
    differences = case.trajectory.differences if case.trajectory is not None else ()
    later = [_Place(one.step, one.stage, one.item, one.left, one.right) for one in differences]
    return [_row(case, place, missing) for place in (loaded + later)[:MAX_ROWS]]


def first_magnitudes(rows: Iterable[Json]) -> list[Json]:
    """The rows of the load and of the first divergent step."""
    whole: list[dict[str, Json]] = [row for row in rows if isinstance(row, dict)]
    later = [row["step"] for row in whole if row["stage"] != LOAD]
    return [row for row in whole if row["stage"] == LOAD or row["step"] == later[0]]


class _Place(NamedTuple):
    """One difference, of the load or of a step."""

    step: int
    stage: str
    item: Item
    left: Entry | Sample | None
    right: Entry | Sample | None


def item_of(one: EntryDifference) -> Item:
    """The item under which an entry of a state is recorded and measured."""
    return Item(one.section, one.name, one.key, -1 if one.optimizer is None else one.optimizer)


def _row(case: Case, place: _Place, missing: str) -> dict[str, Json]:
    step, stage, item, left, right = place
    is_parameter = item.kind in ("param", "grad", "state")
    row: dict[str, Json] = {
        "run": case.run,
        "step": step,
        "stage": stage,
        "section": item.kind,
        "parameter": item.name if is_parameter else None,
        "key": item.key or (None if is_parameter else item.name) or None,
        "optimizer": item.optimizer if item.optimizer >= 0 else None,
    }
    row["kind"] = "added" if left is None else "removed" if right is None else "changed"
    for name, side in (("left", left), ("right", right)):
        row[name] = side.value if side is not None else None
        row[f"{name}_norm"] = side.norm if side is not None else None
    difference = case.measured.get((step, item))
    row |= _numbers(difference)
    if difference is None:
        row["reason"] = _why_not(left, right) or missing
    return row


def _why_not(left: Entry | Sample | None, right: Entry | Sample | None) -> str:
    if left is None or right is None:
        return "on one side only"
    if left.spec is None or right.spec is None:
        return "a plain value"
    return f"{left.spec} on the left, {right.spec} on the right" if left.spec.shape != right.spec.shape else ""


def _numbers(difference: TensorDifference | None) -> dict[str, Json]:
    if difference is None:
        return dict.fromkeys(NUMBERS)
    values: Mapping[str, Any] = asdict(difference)
    return {name: list(value) if isinstance(value := values[name], tuple) else value for name in NUMBERS}

"""How far a resumed script is from the run that it continues: what to measure of a case, and what comes of it."""

import sys
from dataclasses import replace
from typing import Final

from ckptcheck.comparison.curve import MOST_CELLS, Curve
from ckptcheck.comparison.spread import norm_gaps, spread_of
from ckptcheck.experiment.commands.second_pass import TOO_MUCH, Apart, Measure
from ckptcheck.experiment.noise import NUMERIC
from ckptcheck.finding import Json
from ckptcheck.rules.runs.case import Case
from ckptcheck.state.stages import LOAD
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import STEP, Item
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.cases import loaded_step, within_tolerance
from ckptcheck.verdict.parts import trajectory_rows
from ckptcheck.verdict.scripts.placing import Placed

QUICK: Final = "with --quick nothing is run once more to measure it"


def apart(rank: int, case: Case, reference: Trace, placed: Placed | None = None, ranks: int = 1) -> Apart:
    """What to measure of a case, which is of one of so many ranks; `placed` is the resumed run."""
    samples = reference.samples(max(reference.steps, default=0), STEP).values()
    size = sum(one.spec.nbytes for one in samples if one.spec is not None)
    curve = first = None
    if placed is not None and placed.step == case.step and case.trajectory is not None and not case.goes_on_exactly:
        first = reference, placed.trace
        spread = spread_of(*first, case.trajectory.steps)
        # What there is room for is worked out for all ranks and steps together.
        curve = Curve(spread, norm_gaps(spread, *first), sys.maxsize, MOST_CELLS // ranks)
    return Apart(rank, case.step, case.load, case.trajectory, size, curve, first)


def with_measure(case: Case, measure: Measure, policy: Policy, curve: Curve | None = None) -> Case:
    """The case with what was measured. With a tolerance it is without what is within it, and what nobody measured."""
    trajectory = case.trajectory
    if policy.tolerant and trajectory is not None:
        trajectory = within_tolerance(trajectory, measure.within, policy)
        unmeasured = left_open(case, measure, policy)
        kept = tuple(one for one in trajectory.differences if one.step not in unmeasured or one.stage not in NUMERIC)
        trajectory = replace(trajectory, differences=kept)
    case = replace(case, measured=measure.measured, trajectory=trajectory, curve=curve)
    return replace(case, other_step=loaded_step(case))


def left_open(case: Case, measure: Measure, policy: Policy) -> frozenset[int]:
    """The steps that differ, and of which nobody measured whether that is within the tolerance."""
    if not policy.tolerant or case.trajectory is None or not measure.steps:
        return frozenset()
    return frozenset(one.step for one in case.trajectory.differences) - measure.steps


def why_open(steps: frozenset[int]) -> str:
    """Why steps were not held against the tolerance."""
    return f"{len(steps)} steps from step {min(steps)} on differ, and were not held against the tolerance: {TOO_MUCH}"


def rows_of(case: Case, measure: Measure | None) -> list[Json]:
    """The trajectory of a case; what has no numbers says why."""
    return [
        {**row, "reason": _why_not(row, measure)} if isinstance(row, dict) and row.get("reason") == "" else row
        for row in trajectory_rows(case, "")
    ]


def _why_not(row: dict[str, Json], measure: Measure | None) -> str:
    return measure.why(*_place(row), at_load=row["stage"] == LOAD) if measure is not None else QUICK


def _place(row: dict[str, Json]) -> tuple[int, Item]:
    step, optimizer = row["step"], row["optimizer"]
    assert isinstance(step, int)
    number = optimizer if isinstance(optimizer, int) else -1
    named = row["parameter"] is not None
    name, key = (row["parameter"], row["key"] or "") if named else (row["key"] or "", "")
    return step, Item(str(row["section"]), str(name), str(key), number)

"""Whether two checkpoints are of one training, the right one no earlier, and what happened between them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.checkpoint_diff import GROUP_KEY, CheckpointDiff, Kind, OptimizerPair, Row
from ckptcheck.state.checkpoint import NameSource
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Optimizer

COUNTER: Final = "step"
"""The state key that counts a parameter's updates."""
_ENOUGH: Final = 0.9
"""Part of a side's names that must differ by one prefix, to be said of all."""
_TRIED: Final = 8
"""Prefixes that are tried."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The update counters of one parameter on both sides."""

    optimizer: int
    parameter: str
    left: float
    right: float
    group: int | None = None

    @property
    def rise(self) -> float:
        """Updates from the left checkpoint to the right one; below zero where the counter went back."""
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class Course:
    """How the right checkpoint follows the left one.

    Attributes:
        why_not: why they cannot be judged as an earlier and a later one of the same training; "" where they can.
        steps: the recorded steps, None where a side does not say.
        counters: of each parameter that has one on both sides.
        prefixes: what stands before the names of the left and of the right only, where that is all that differs.
    """

    why_not: str
    steps: tuple[int | None, int | None]
    counters: tuple[Counted, ...] = ()
    prefixes: tuple[str, str] | None = None

    @property
    def updates(self) -> float:
        """Updates of the parameters that got the most; 0 where no counter rose."""
        return max((one.rise for one in self.counters), default=0.0)

    @property
    def elapsed(self) -> float | None:
        """Steps by the recorded step, else by the counters; None where neither tells."""
        if self.steps[0] is not None and self.steps[1] is not None:
            return self.steps[1] - self.steps[0]
        return self.updates if self.counters else None

    @property
    def advanced(self) -> bool:
        """Whether updates were made in between."""
        return self.updates > 0 or (self.elapsed or 0) > 0

    def of(self, optimizer: int) -> dict[str, Counted]:
        """The counters of one optimizer by parameter."""
        return {one.parameter: one for one in self.counters if one.optimizer == optimizer}


def course_of(diff: CheckpointDiff) -> Course:
    """What the counters, the recorded steps and the names say. Reads the counters, a number each."""
    steps = diff.left.state.step, diff.right.state.step
    counters = tuple(_counters(diff))
    prefixes = _prefixes(diff)
    return Course(_unrelated(diff, prefixes) or _earlier(steps, counters), steps, counters, prefixes)


def state_rows(diff: CheckpointDiff) -> dict[tuple[int, str, str], Row]:
    """The rows about the state of parameters, by optimizer, parameter and key."""
    return {
        (row.optimizer, row.parameter, row.key): row
        for row in diff.rows
        if row.section == "optimizer" and row.optimizer is not None and row.parameter is not None
        and row.key is not None and row.key != GROUP_KEY
    }  # fmt: skip


def model_rows(diff: CheckpointDiff) -> dict[str, Row]:
    """The rows about parameters and buffers, by name."""
    return {row.parameter: row for row in diff.rows if row.section == "model" and row.parameter is not None}


def both(diff: CheckpointDiff) -> Iterator[tuple[OptimizerPair, Optimizer, Optimizer]]:
    """Each optimizer that both sides have."""
    for one in diff.optimizers:
        if one.left is not None and one.right is not None:
            yield one, diff.left.state.optimizers[one.left], diff.right.state.optimizers[one.right]


def unnamed(diff: CheckpointDiff, one: OptimizerPair) -> str:
    """Why the members of an optimizer cannot be told apart by name; "" where they surely can."""
    for side, checkpoint, place in (("left", diff.left, one.left), ("right", diff.right, one.right)):
        if place is None or place >= len(checkpoint.namings) or checkpoint.namings[place].certain:
            continue
        naming = checkpoint.namings[place]
        what = "its members are numbered" if naming.source is NameSource.NONE else "they are guessed"
        return f"optimizer {place} of the {side} checkpoint has no names that are certain, {what}: {naming.reason}"
    return ""


def _counters(diff: CheckpointDiff) -> Iterator[Counted]:
    rows = state_rows(diff)
    for one, left, right in both(diff):
        groups = left.first_groups()
        for name in {**left.state, **right.state}:
            row = rows.get((one.optimizer, name, COUNTER))
            sides = row.left if row else None, row.right if row else None
            if row is None and diff.whole:
                sides = left.state.get(name, {}).get(COUNTER), right.state.get(name, {}).get(COUNTER)
            numbers = [value_of(side) for side in sides]
            before, after = numbers
            if isinstance(before, int | float) and isinstance(after, int | float):
                yield Counted(one.optimizer, name, before, after, groups.get(name))


def _unrelated(diff: CheckpointDiff, prefixes: tuple[str, str] | None) -> str:
    """Why they are not of one training: their names or shapes differ in most."""
    found = {one.section: one for one in diff.summaries}
    told = found.get("model") or found.get("optimizer")
    if told is None:
        return "the two checkpoints have neither weights nor optimizer state that could be compared"
    reshaped = sum(1 for row in diff.rows if row.section == told.section and row.kind is Kind.SHAPE)
    common = told.tensors + told.values - reshaped
    fewer = min(told.tensors + told.values + told.removed, told.tensors + told.values + told.added)
    if common * 2 >= fewer > 0 or prefixes is not None:
        return ""
    return "most names or shapes differ: these are no two checkpoints of one training"


def _earlier(steps: tuple[int | None, int | None], counters: tuple[Counted, ...]) -> str:
    """Why the right one is no later one; a step that went back while counters rose is a fault, and no reason."""
    recorded = steps[1] - steps[0] if steps[0] is not None and steps[1] is not None else None
    counted = max(one.right for one in counters) - max(one.left for one in counters) if counters else None
    if recorded is not None and recorded < 0 and (counted is None or counted < 0):
        return (
            f"the right checkpoint is of step {steps[1]} and the left one of step {steps[0]}: hand in the earlier first"
        )
    if recorded is None and counted is not None and counted < 0:
        return "the update counters of the right checkpoint are lower: hand in the earlier one first"
    return ""


def _prefixes(diff: CheckpointDiff) -> tuple[str, str] | None:
    """What stands before nearly all names of one side, where the rest of the names is the same."""
    rows = [row for row in diff.rows if row.section == "model" and row.parameter is not None]
    gone = {row.parameter for row in rows if row.kind in (Kind.REMOVED, Kind.RENAMED) and row.parameter}
    new = {row.parameter for row in rows if row.kind is Kind.ADDED and row.parameter}
    renamed = {row.other for row in rows if row.kind is Kind.RENAMED}
    on_both = next((one.tensors for one in diff.summaries if one.section == "model"), 0) - len(renamed)
    if on_both > len(gone):
        return None
    theirs = _begin(gone, new | renamed)
    ours = _begin(new | renamed, gone)
    return ("", theirs) if theirs else (ours, "") if ours else None


def _begin(names: set[str], longer: set[str]) -> str:
    """What stands before nearly each of `names` in nearly all `longer` ones; "" where there is no such thing."""
    longest = max(names, key=len, default="")
    begins = [other.removesuffix(longest) for other in longer if other.endswith(f".{longest}")] if names else []
    for begin in begins[:_TRIED]:
        if sum(f"{begin}{name}" in longer for name in names) >= _ENOUGH * max(len(names), len(longer)):
            return begin
    return ""

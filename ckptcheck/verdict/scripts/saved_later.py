"""What two runs save later on, held against each other: of what only a checkpoint holds, no step tells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, Kind, Row
from ckptcheck.comparison.checkpoints import diff_checkpoints
from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import CheckpointError
from ckptcheck.experiment.commands.checkpoints import nbytes_of
from ckptcheck.experiment.commands.later import SavedTwice, saved_twice
from ckptcheck.experiment.commands.plan import CommandExperiment
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.finding import Cause, Finding, Json, Severity
from ckptcheck.readers.reading import read_raw
from ckptcheck.rules.rule import chosen, judged
from ckptcheck.rules.runs.judge import Judgement
from ckptcheck.rules.runs.later import LATER_RULES, Later
from ckptcheck.state.training_state import Entry

MOST_BYTES: Final = 4 << 30
"""Larger pairs are not compared."""
GENERATOR_SIZES: Final[Mapping[int, tuple[int, ...]]] = {1: (16, 5048, 5056), 4: (624, 625), 8: (624, 625)}
"""Elements of a generator's state, by bytes an element: CUDA, torch before and after 1.7 on CPU; numpy, python."""

_Place: TypeAlias = tuple[str, str | None, str | None, int | None]


@dataclass(frozen=True, slots=True)
class Sides:
    """The output folders of the uninterrupted run, the resumed one, and of the repeats."""

    left: Path
    right: Path
    repeats: tuple[Path, ...] = ()


@dataclass(slots=True)
class _Sorted:
    rows: list[Row] = field(default_factory=list)
    generators: list[Row] = field(default_factory=list)
    values: list[Row] = field(default_factory=list)
    chance: int = 0


def saved_later(experiment: CommandExperiment, whole: Sequence[Recorded], resumed: Recorded, step: int) -> list[Later]:
    """What the uninterrupted run and one that goes on exactly after `step` both saved later; `whole` has it first.

    To be asked before any run is made again.
    """
    reference, *repeats = whole
    left, right = experiment.output_of(reference), experiment.output_of(resumed)
    changes = experiment.last_changes(reference), experiment.last_changes(resumed)
    sides = Sides(left, right, tuple(map(experiment.output_of, repeats)))
    return compared_later(saved_twice(left, changes[0], right, changes[1], step), sides)


def compared_later(found: Sequence[SavedTwice], sides: Sides) -> list[Later]:
    """Hold each checkpoint of the uninterrupted run against that of the resumed one; nothing in them is executed."""
    return [_compared(one, sides) for one in found]


def _compared(saved: SavedTwice, sides: Sides) -> Later:
    places = [folder / saved.path for folder in (sides.left, sides.right, *sides.repeats)]
    if not sides.repeats:
        return Later(saved, reason="no equal run saved it too, so that nobody knows what of it is chance")
    try:
        if sum(map(nbytes_of, places[:2])) > MOST_BYTES:
            return Later(saved, reason=f"it is larger than {MOST_BYTES >> 30} GiB on both sides together")
        diff = _diff(places[0], places[1])
        if not diff.rows:
            return Later(saved)
        noise = {_place(row) for one in places[2:] for row in _diff(places[0], one).rows}
    except (CheckpointError, OSError) as error:
        return Later(saved, reason=f"it cannot be read: {error}")
    told = _sorted(diff, noise)
    if any(_is_of_the_training(row, diff) for row in told.rows) and not _says_equal_steps(diff):
        # All steps are equal: weights beside their optimizer that are others may be those of another step.
        return Later(saved, reason="its weights and optimizer state are those of different moments of the training")
    return Later(saved, tuple(told.rows), tuple(told.generators), tuple(told.values), told.chance)


def _diff(left: Path, right: Path) -> CheckpointDiff:
    return diff_checkpoints(explain(read_raw(left)), explain(read_raw(right)))


def _place(row: Row) -> _Place:
    return row.section, row.parameter, row.key, row.optimizer


def _sorted(diff: CheckpointDiff, noise: set[_Place]) -> _Sorted:
    told = _Sorted()
    for row in diff.rows:
        if _place(row) in noise:
            told.chance += 1
        elif row.section == "rng" or any(map(_is_generator, _entries(row))):
            told.generators.append(row)
        elif row.kind is Kind.RENAMED or _is_history(row) or not any(map(_is_array, _entries(row))):
            told.values.append(row)
        else:
            told.rows.append(row)
    return told


def _entries(row: Row) -> Iterator[Entry]:
    yield from (entry for entry in (row.left, row.right) if entry is not None)


def _is_array(entry: Entry) -> bool:
    return entry.spec is not None and bool(entry.spec.shape)


def _is_history(row: Row) -> bool:
    """Whether it is a list of numbers that the resumed run begins anew, as a log of losses is."""
    return row.kind is Kind.SHAPE and all(entry.spec and len(entry.spec.shape) == 1 for entry in _entries(row))


def _is_generator(entry: Entry) -> bool:
    spec = entry.spec
    if spec is None or len(spec.shape) != 1 or "float" in spec.dtype:
        return False
    return spec.shape[0] in GENERATOR_SIZES.get(spec.nbytes // max(spec.shape[0], 1), ())


def _is_of_the_training(row: Row, diff: CheckpointDiff) -> bool:
    has_optimizer = bool(diff.left.state.optimizers)
    return row.section == "optimizer" or (row.section == "model" and has_optimizer)


def _says_equal_steps(diff: CheckpointDiff) -> bool:
    return diff.left.state.step is not None and diff.left.state.step == diff.right.state.step


def judged_later(found: Sequence[Later], select: Sequence[str], ignore: Sequence[str]) -> Judgement:
    """What the rules say of them, of each code and severity the first in time; tensors that differ are the cause."""
    rules = chosen(LATER_RULES, select, ignore)
    told: dict[tuple[str, Severity], Finding] = {}
    for one in sorted(found, key=lambda one: one.saved.step):
        for finding in judged(rules, one, {})[0]:
            told.setdefault((finding.code, finding.severity), finding)
    findings = tuple(told.values())
    first = next((one for one in findings if not one.evidence.get("without_effect")), None)
    if first is None:
        return Judgement(findings, (), None, None)
    return Judgement(findings, (), Cause(first.code, "certain"), first.where)


def why_not(found: Sequence[Later], step: int) -> str:
    """Why what only a checkpoint holds was not judged; "" where some of it was."""
    if not found:
        return f"nothing was saved after step {step} by both runs: what only the checkpoint holds was not compared"
    if all(one.reason for one in found):
        return f"what is saved later was not compared ({found[0].saved.path}): {found[0].reason}"
    return ""


def saved_part(found: Sequence[Later]) -> list[Json]:
    """What came of each checkpoint, as a result holds it."""
    return [
        {
            "path": one.saved.path,
            "step": one.saved.step,
            "tensors": len(one.rows),
            "generators": len(one.generators),
            "values": len(one.values),
            "chance": one.chance,
            "reason": one.reason or None,
        }
        for one in found
    ]

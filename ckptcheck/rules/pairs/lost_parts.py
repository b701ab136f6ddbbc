"""CK2 and CK6: whole parts that the later checkpoint lacks, and parts that stood still while the training went on."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.comparison.checkpoint_diff import Kind
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import completeness as runs
from ckptcheck.rules.runs.schedule import schedule_diverged
from ckptcheck.rules.stored import surroundings
from ckptcheck.rules.stored.averages import UPDATES
from ckptcheck.rules.stored.writers import known
from ckptcheck.rules.words import brief, count, generators, kept, names
from ckptcheck.state.raw import Flaw
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Entry, TrainingState

_KINDS: Final = ("torch", "cuda", "numpy", "python")
_POSITION: Final = "last_epoch"
"""What a schedule of torch calls the number of its steps."""


def why_not(pair: Pair) -> str:
    """Why nobody can say that a part is lost; "" where it can be said."""
    if pair.course.why_not:
        return pair.course.why_not
    if not pair.diff.whole:
        return "only a part of the two checkpoints was compared"
    unread = [one.file for one in pair.diff.right.raw.defects if one.flaw is Flaw.UNREADABLE]
    return f"{names(unread) or 'a file'} cannot be read, and nobody knows what is in it" if unread else ""


@also(runs.optimizer_state_absent)
def optimizer_lost(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint has no optimizer and the earlier one has; of a release nothing else is expected."""
    left, right = pair.diff.left.state, pair.diff.right.state
    if not left.optimizers or right.optimizers:
        return
    if why := why_not(pair):
        yield Unjudged(why)
    elif right.parameters and (not pair.released or _counts(right)):
        had = [name for one in left.optimizers for name in one.state]
        yield Evidence(
            f"the right checkpoint holds no optimizer, and the left one has state of {count(had, 'parameter')}: a "
            f"training cannot go on from it as it went{_kept_beside(right)}",
            Place(path=str(pair.diff.right.raw.path), parameter=had[0] if had else None),
            {"parameters": kept(had), "missing": len(had)},
            "save optimizer.state_dict() with the weights; where only weights are wanted, save them alone",
            Severity.WARNING if pair.released else None,
        )


def _counts(state: TrainingState) -> bool:
    return state.step is not None or bool(state.sections.get("progress"))


def _kept_beside(right: TrainingState) -> str:
    parts = [name for name in ("schedule", "scaler", "data") if right.sections.get(name)]
    parts += ["generators"] if right.rng else []
    return f"; it keeps {names(parts)}" if parts else ""


@also(surroundings.scheduler_state_absent)
def schedule_lost(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint has no state of a schedule and the earlier one has."""
    yield from _lost(pair, "schedule", "CK204", "the schedule", "save scheduler.state_dict() with the rest")


@also(surroundings.scaler_state_absent)
def scaler_lost(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint has no state of a gradient scaler and the earlier one has."""
    yield from _lost(pair, "scaler", "CK206", "the gradient scaler", "save scaler.state_dict() with the rest")


@also(surroundings.data_position_absent)
def data_position_lost(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint has no position in the data and the earlier one has."""
    yield from _lost(pair, "data", "CK207", "the position in the data", "save the loader's or sampler's state")


def _lost(pair: Pair, section: str, code: str, what: str, fix: str) -> Iterator[Evidence | Unjudged]:
    left, right = pair.diff.left, pair.diff.right
    if not left.state.sections.get(section) or right.state.sections.get(section) or pair.released:
        return
    if why := why_not(pair):
        yield Unjudged(why)
        return
    told = known(right.convention, code)
    yield Evidence(
        f"the right checkpoint lacks the state of {what}, which the left one has",
        Place(path=str(right.raw.path)),
        {"held": kept(left.state.sections[section])},
        fix,
        Severity.ERROR if told is not None and told.severity is Severity.ERROR else None,
    )


@also(runs.rng_state_absent)
def generators_lost(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint lacks the state of generators that the earlier one has."""
    left, right = pair.diff.left.state.rng, pair.diff.right.state.rng
    gone = [kind for kind in _KINDS if _has(left, kind) and not _has(right, kind)]
    if not gone or pair.released:
        return
    if why := why_not(pair):
        yield Unjudged(why)
        return
    yield Evidence(
        f"the right checkpoint lacks the state of {generators(gone)}, which the left one has",
        Place(path=str(pair.diff.right.raw.path), key=gone[0]),
        {"missing": kept(gone), "held": kept(right)},
        "save the generators' states with the rest, and restore them last of all",
        None if not right or "torch" in gone else Severity.INFO,
    )


def _has(held: Mapping[str, Entry], kind: str) -> bool:
    """Whether generators of a kind are there; their names may have a rank in them."""
    return any(re.search(rf"(?<![a-z]){kind}(?![a-z])", name) for name in held)


@also(runs.ema_state_inconsistent)
def average_lost_or_stale(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint lacks the average, or has that of the earlier one though weights moved."""
    left, right = (side.state.sections.get("ema") or {} for side in (pair.diff.left, pair.diff.right))
    if not left or pair.released:
        return
    if why := why_not(pair):
        yield Unjudged(why)
    elif not right:
        yield Evidence(
            "the right checkpoint lacks the averaged weights, which the left one has",
            Place(path=str(pair.diff.right.raw.path), key="ema"),
            {"held": kept(left)},
            "save the average with the rest: it cannot be made again",
        )
    elif _stood_still(pair, left, right):
        tensors = [path for path, one in left.items() if one.spec is not None and one.spec.numel > 1]
        yield Evidence(
            f"the average is byte for byte that of the left checkpoint, all {count(tensors, 'tensor')} of it, although "
            "the weights moved: it was not updated, or is the one that was saved before",
            Place(parameter=tensors[0], key="ema"),
            {"tensors": kept(tensors), "count": len(tensors)},
            "update the average after each optimizer step, and save the one that is updated",
        )


def _stood_still(pair: Pair, left: Mapping[str, Entry], right: Mapping[str, Entry]) -> bool:
    """Whether no tensor of the average moved, although it moved with every step before."""
    if not _weights_moved(pair) or not any(one.spec is not None and one.spec.numel > 1 for one in left.values()):
        return False
    rows = [row for row in pair.diff.rows if row.section == "ema"]
    if any(row.left is None or row.left.spec is None or row.left.spec.numel > 1 for row in rows):
        return False
    counted = [
        (finite_number(one), finite_number(right.get(path))) for path, one in left.items()
        if path.rpartition(".")[2] in UPDATES
    ]  # fmt: skip
    # One that is updated now and then, or begins later, may rest between two checkpoints.
    made = max((one.left for one in pair.course.counters), default=pair.diff.left.state.step or 0)
    return all(
        before is not None and after is not None and (after > before or before >= made > 0) for before, after in counted
    )


def _weights_moved(pair: Pair) -> bool:
    return pair.course.advanced and any(
        row.section == "model" and row.kind is Kind.CHANGED and row.parameter in pair.diff.left.state.parameters
        for row in pair.diff.rows
    )


@also(schedule_diverged, severity=Severity.WARNING)
def schedule_stood_still(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The schedule stands where it stood in the earlier checkpoint, although it went with every step before."""
    if why := why_not(pair):
        yield Unjudged(why)
        return
    left, right = (side.state.sections.get("schedule") or {} for side in (pair.diff.left, pair.diff.right))
    steps, updates = pair.course.steps, max((one.left for one in pair.course.counters), default=None)
    for path, entry in left.items():
        before, after = finite_number(entry), finite_number(right.get(path))
        if path.rpartition(".")[2] != _POSITION or before is None or before != after or before <= 0:
            continue
        with_steps = steps[0] is not None and steps[1] is not None and before == steps[0] < steps[1]
        with_updates = before == updates and pair.course.updates > 0
        if with_steps or with_updates:
            went = f"step {steps[0]} to {steps[1]}" if with_steps else f"{brief(pair.course.updates)} updates"
            yield Evidence(
                f"the schedule stands at {brief(before)} in both checkpoints, where it stood at the left one's own "
                f"step; the training went on from it ({went}): it was not stepped, or is the one that was saved before",
                Place(key=path),
                {"left": before, "right": after, "steps": [*steps]},
                "save the scheduler that is stepped, after its step",
            )
            return


RULES: Final[tuple[Rule[Pair], ...]] = (
    optimizer_lost,
    schedule_lost,
    scaler_lost,
    data_position_lost,
    generators_lost,
    average_lost_or_stale,
    schedule_stood_still,
)

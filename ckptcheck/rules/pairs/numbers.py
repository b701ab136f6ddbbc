"""CK5: counters and dtypes of two checkpoints."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ckptcheck.comparison.checkpoint_diff import GROUP_KEY, Kind, Row
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.pairs.completeness import optimizers_apart
from ckptcheck.rules.pairs.course import Counted, Course
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs import numbers as runs
from ckptcheck.rules.words import brief, count, kept, names
from ckptcheck.state.tensor import ITEMSIZE_BYTES

_FEW: Final = 2
"""Differing elements of which chance may round each."""
_LABEL: Final = 1
"""By how much writers differ in what they call the step of a checkpoint."""
_FLOATING: Final = ("float", "bfloat")
_HALVES: Final = ("bfloat16", "float16", "float32")


@also(runs.dtype_narrowed)
def dtype_narrowed(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """The later checkpoint keeps tensors in a narrower dtype, or holds values that went through one."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    narrowed = [(row, through) for row in pair.diff.rows if (through := _narrowed_to(row)) is not None]
    if narrowed:
        first = narrowed[0][0]
        found = [f"{row.parameter}.{row.key}" if row.key else str(row.parameter) for row, _ in narrowed]
        through = Counter(kind for _, kind in narrowed).most_common(1)[0][0]
        yield Evidence(
            f"{count(narrowed, 'tensor')} of the right checkpoint {'is' if len(narrowed) == 1 else 'are'} kept in "
            f"{through} or went through it, which is narrower than in the left one: {names(found)}",
            Place(optimizer=first.optimizer, parameter=first.parameter, key=first.key),
            {"rounded_through": through, "tensors": kept(found), "count": len(narrowed)},
            f"save these tensors in the dtype that training uses, not as {through}",
        )


def _narrowed_to(row: Row) -> str | None:
    left, right = (entry.spec if entry is not None else None for entry in (row.left, row.right))
    if row.section not in ("model", "optimizer", "ema") or row.key == GROUP_KEY or left is None or right is None:
        return None
    if not (left.dtype.startswith(_FLOATING) and right.dtype.startswith(_FLOATING)):
        return None
    if ITEMSIZE_BYTES.get(right.dtype, 0) < ITEMSIZE_BYTES.get(left.dtype, 0):
        return right.dtype
    measured = row.difference if row.kind is Kind.CHANGED else None
    through = measured.rounded_through if measured is not None and measured.differing > _FEW else None
    return through if through in _HALVES else None  # what is all ones, or zero, fits the narrowest


@also(runs.step_counter_mismatch)
def step_counter_mismatch(pair: Pair) -> Iterator[Evidence | Unjudged]:
    """An update counter went back, or contradicts the recorded steps of the two checkpoints."""
    if reason := optimizers_apart(pair):
        yield Unjudged(reason)
        return
    course = pair.course
    if not course.counters:
        yield Unjudged("no update counter is on both sides")
        return
    fallen = [one for one in course.counters if one.rise < 0]
    if fallen:
        yield _fallen(course, fallen)
        return
    yield from _against_steps(course)


def _fallen(course: Course, fallen: list[Counted]) -> Evidence:
    worst = min(fallen, key=lambda one: one.rise)
    anew = ": as though the optimizer had started anew" if len(fallen) == len(course.counters) else ""
    recorded = f", while the recorded step went from {course.steps[0]} to {course.steps[1]}" if _known(course) else ""
    return Evidence(
        f"the update counter of {count(fallen, 'parameter')} of {len(course.counters)} went back: "
        f"{names(one.parameter for one in fallen)}; that of {worst.parameter} went from {brief(worst.left)} to "
        f"{brief(worst.right)}, off by {brief(worst.rise)}{recorded}{anew}",
        _place(worst),
        {
            "left": worst.left,
            "right": worst.right,
            "off_by": worst.rise,
            "parameters": kept(o.parameter for o in fallen),
        },
        "restore the counter with the rest of the optimizer's state",
    )


def _against_steps(course: Course) -> Iterator[Evidence]:
    """What contradicts the recorded steps, where these count updates: the left's counters say whether they do."""
    before, after = course.steps
    if before is None or after is None:
        return
    first = max(course.counters, key=lambda one: (one.rise, one.right))
    elapsed, newest = after - before, max(one.right for one in course.counters)
    if elapsed < -_LABEL:
        off = course.updates - elapsed
        yield _off(first, off, f"the recorded step went back from {before} to {after} while no update counter did")
    elif before > _LABEL and max(one.left for one in course.counters) == before:
        hasty = [one for one in course.counters if one.rise > elapsed + _LABEL]
        if hasty and _alike(course, hasty):
            said = f"in {elapsed} steps the update counters rose by {brief(first.rise)}, and before once a step: the " \
                   "number of updates in a step changed, or the counters went on by themselves"  # fmt: skip
            yield _off(first, first.rise - elapsed, said, Severity.INFO)
        elif hasty:
            said = f"in {elapsed} steps the update counter of {names(one.parameter for one in hasty)} rose by " \
                   f"{brief(first.rise)}"  # fmt: skip
            yield _off(first, first.rise - elapsed, said)
        elif elapsed and newest + before == after and first.rise > 0:
            said = f"at step {after} the highest update counter is {brief(newest)}: as though the optimizer had " \
                   f"started anew at step {before}, that of the left checkpoint"  # fmt: skip
            yield _off(first, newest - after, said)


def _alike(course: Course, hasty: list[Counted]) -> bool:
    """Whether all counters of the optimizers in question rose by the same."""
    optimizers = {one.optimizer for one in hasty}
    return all(len({one.rise for one in course.of(place).values()}) == 1 for place in optimizers)


def _off(one: Counted, off: float, said: str, severity: Severity | None = None) -> Evidence:
    return Evidence(
        f"{said}: off by {brief(off)}",
        _place(one),
        {"left": one.left, "right": one.right, "off_by": off},
        "count steps and updates in one place, and restore both",
        severity,
    )


def _place(one: Counted) -> Place:
    return Place(optimizer=one.optimizer, parameter=one.parameter, key="step", group=one.group)


def _known(course: Course) -> bool:
    return course.steps[0] is not None and course.steps[1] is not None


RULES: Final[tuple[Rule[Pair], ...]] = (dtype_narrowed, step_counter_mismatch)

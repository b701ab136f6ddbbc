"""The situations that the compared steps of an experiment crossed, those that they did not, and what would cross them.

A result of verify holds them as `crossed`:

    {"covered": [name, ...], "not_covered": [name, ...], "does_not_apply": [name, ...],
     "situations": [{"name": ..., "covered": "yes|no|does not apply", "steps": [...], "why": ..., "to_cover": ...}],
     "points": [{"step": 7, "reasons": ["in the middle of an accumulation window", ...]}],
     "in_a_row": [{"run": "resumed@3@7", "source": "resumed@3", "against": "reference", "why": ""}]}

`steps` are those in which a covered situation was met; `why` says what shows it, or what is missing; `to_cover` is the
option that would cover what was not, "" where none would. `points` are the steps that were resumed after, each with
what speaks for it there. `in_a_row`, of targets, are the runs that were resumed from a resumed one; its steps are held
against the reference, or against its source as that went on, where the source had already diverged when it saved.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ckptcheck.finding import Json
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import SAVED, STEP, Item
from ckptcheck.verdict.course import TRAINED, Course, course_of, is_rate
from ckptcheck.verdict.scouting import BETWEEN, reasons_for

YES: Final = "yes"
NO: Final = "no"
DOES_NOT_APPLY: Final = "does not apply"
AUTO: Final = "--resume-at auto"
LONGER: Final = "more --steps"


@dataclass(frozen=True, slots=True)
class Situation:
    """One situation: whether it was covered, in which steps, what shows that, and the option that would cover it."""

    name: str
    covered: str
    steps: tuple[int, ...] = ()
    why: str = ""
    to_cover: str = ""

    def row(self) -> dict[str, Json]:
        """As a result holds it."""
        return {
            "name": self.name,
            "covered": self.covered,
            "steps": list(self.steps),
            "why": self.why,
            "to_cover": self.to_cover,
        }


@dataclass(frozen=True, slots=True)
class Experimented:
    """What was done with a run: resumed after these `points`, ascending; `chained` says whether twice in a row.

    `in_evaluation` are the points at which a module was in evaluation mode when the run was saved; `pending_rates` and
    `pending_sets` those after which the next step has another learning rate, or trains other parameters, than what was
    saved says: that change was made after the save.
    """

    course: Course
    points: tuple[int, ...]
    chained: bool
    in_evaluation: tuple[int, ...] = ()
    pending_rates: frozenset[int] = frozenset()
    pending_sets: frozenset[int] = frozenset()

    @property
    def last(self) -> int:
        """The last step."""
        return self.course.steps[-1] if self.course.steps else 0


def crossed(reference: Trace, points: Sequence[int], chained: bool) -> dict[str, Json]:
    """The situations, as a result holds them."""
    rates = [item for item, _ in reference.tensors() if is_rate(item)]
    done = Experimented(
        course_of(reference),
        tuple(points),
        chained,
        _in_evaluation(reference, points),
        _pending(reference, points, rates),
        _pending(reference, points, TRAINED),
    )
    return told(situations(done), [(step, reasons_for(done.course, step)) for step in points])


def told(found: Sequence[Situation], points: Iterable[tuple[int, Sequence[str]]]) -> dict[str, Json]:
    """Situations and points as a result holds them."""
    return {
        "covered": [one.name for one in found if one.covered == YES],
        "not_covered": [one.name for one in found if one.covered == NO],
        "does_not_apply": [one.name for one in found if one.covered == DOES_NOT_APPLY],
        "situations": [one.row() for one in found],
        "points": [{"step": step, "reasons": list(reasons)} for step, reasons in points],
    }


def situations(done: Experimented) -> list[Situation]:
    """Every situation, in the order in which a result tells of them."""
    return [
        Situation("a resume in a fresh process", YES, done.points),
        *_of_saves(done),
        _mid_window(done),
        _between_updates(done),
        _without_update(done),
        *_of_overflows(done),
        _end_of_warm_up(done),
        _rate_change(done),
        _trainable_set(done),
        _end_of_epoch(done),
        _average(done),
        _evaluation(done),
    ]


def _of_saves(done: Experimented) -> list[Situation]:
    second = "a second save", "a second resume in a row"
    if len(done.points) < 2:
        option = AUTO if done.last > 2 else LONGER
        return [Situation(name, NO, why="it was resumed after one step only", to_cover=option) for name in second]
    save = Situation(second[0], YES, done.points[1:])
    if done.chained:
        return [save, Situation(second[1], YES, done.points[1:2])]
    return [save, Situation(second[1], NO, why="the first resumed run did not come to its end")]


def _mid_window(done: Experimented) -> Situation:
    name, windows = "a resume in the middle of an accumulation window", done.course.windows
    why = _why_no_update(done) or "no step left gradients behind for a later one"
    within = _resumable(windows, done)
    return _at_points(name, windows, done, why) if within or not windows else Situation(
        name, NO, why="only the last step lies within a window", to_cover=LONGER
    )  # fmt: skip


def _between_updates(done: Experimented) -> Situation:
    """Covered where each optimizer that rests was between its updates at some point."""
    name, found = f"a resume {BETWEEN}", done.course.between
    if not found:
        known = "updates" in done.course.keeps
        why = "no optimizer rests between its updates" if known else "no optimizer was handed over"
        return Situation(name, DOES_NOT_APPLY, why=why)
    for place, steps in found.items():
        if steps.isdisjoint(done.points):
            near = nearest(steps, done.last / 2)
            why = f"optimizer {place} is between its updates after step {near}"
            return Situation(name, NO, why=why, to_cover=f"--resume-at {near}")
    anyone = frozenset[int]().union(*found.values())
    return Situation(name, YES, tuple(step for step in done.points if step in anyone))


def _without_update(done: Experimented) -> Situation:
    why = _why_no_update(done) or "every step made an update"
    return _after_resume("a step without an update", done.course.idle, done, none=why, applies=bool(done.course.idle))


def _of_overflows(done: Experimented) -> list[Situation]:
    found, scaled = done.course.overflows, "scaler" in done.course.keeps
    name, right_after = "an overflow", "a resume right after an overflow"
    if not scaled:
        why = "no gradient scaler was seen at work"
        return [Situation(one, DOES_NOT_APPLY, why=why) for one in (name, right_after)]
    none = f"the loss scale never fell in {done.last} steps"
    crossing = _after_resume(name, found, done, none=none)
    if not _resumable(found, done):
        return [crossing, Situation(right_after, NO, why=none if not found else "no step follows it", to_cover=LONGER)]
    return [crossing, _at_points(right_after, found, done, none)]


def _end_of_warm_up(done: Experimented) -> Situation:
    name, found = "the end of the warm-up", done.course.warm_ups
    if not found:
        return Situation(name, DOES_NOT_APPLY, why="the learning rate does not begin with a rise")
    # In step k + 1 the rate is what was set before the save: the first rise that the resumed run makes is one later.
    whole = [one for one in found if one.stop is not None]
    covered = sorted({one.stop for one in whole if one.stop is not None and one.last_rise > done.points[0] + 1})
    if covered:
        return Situation(name, YES, tuple(covered), f"the learning rate rises no further from step {covered[0]} on")
    if not whole:
        why = f"the learning rate still rises in step {max(one.last_rise for one in found)}"
        return Situation(name, NO, why=why, to_cover=LONGER)
    latest = max(one.last_rise for one in whole)
    why = f"the learning rate rises up to step {latest}"
    return Situation(name, NO, why=why, to_cover=f"--resume-at {latest - 2}" if latest > 2 else "")


def _rate_change(done: Experimented) -> Situation:
    name, found = "a change of the learning rate", done.course.rate_changes
    none = f"the learning rate is the same in all {done.last} steps"
    applies = bool(found) or "schedule" in done.course.keeps
    return _after_resume(name, found, done, none=none, pending=done.pending_rates, applies=applies)


def _trainable_set(done: Experimented) -> Situation:
    name, found = "a change of the trainable set", done.course.regroupings
    none = f"the same parameters are trained in all {done.last} steps"
    return _after_resume(name, found, done, none=none, pending=done.pending_sets, applies=bool(found))


def _end_of_epoch(done: Experimented) -> Situation:
    name, course = "the end of an epoch", done.course
    if not course.epochs and not course.counts_data:
        kept = "the data that was handed over counts nothing" if "data" in course.keeps else "no data was handed over"
        return Situation(name, NO, why=f"none can be told: {kept}, and no batch came again in {done.last} steps")
    none = f"no counter of the data and no batch that comes again shows one in {done.last} steps"
    return _after_resume(name, course.epochs, done, none=none, shown=course.epochs)


def _average(done: Experimented) -> Situation:
    name, found = "an update of a moving average", done.course.averages
    if "ema" not in done.course.keeps:
        return Situation(name, DOES_NOT_APPLY, why="no moving average was seen")
    return _after_resume(name, found, done, none=f"it did not move in {done.last} steps")


def _evaluation(done: Experimented) -> Situation:
    name = "a resume with modules in evaluation mode"
    if not done.in_evaluation:
        return Situation(name, DOES_NOT_APPLY, why="every module was in training mode when the run was saved")
    return Situation(name, YES, done.in_evaluation)


def _after_resume(
    name: str, found: Collection[int], done: Experimented, *, none: str, pending: Collection[int] | None = None,
    applies: bool = True, shown: Mapping[int, str] | None = None,
) -> Situation:  # fmt: skip
    """A situation that is covered where it is met after a resume.

    With `pending`, what shows in the first resumed step was done before the save, unless the point is among these.
    """
    if not found:
        return Situation(name, NO if applies else DOES_NOT_APPLY, why=none, to_cover=LONGER if applies else "")
    start = done.points[0]
    first = start + 1 if pending is None or start in pending else start + 2
    met = tuple(sorted(step for step in found if step >= first or (pending and step - 1 in pending)))
    if met:
        return Situation(name, YES, met, f"step {met[0]}: {shown[met[0]]}" if shown else "")
    before = max(found)
    point = before - (1 if pending is None else 2)
    why = f"the last one is in step {before}" + (f": {shown[before]}" if shown else "")
    return Situation(name, NO, why=why, to_cover=f"--resume-at {point}" if point >= 1 else LONGER)


def _at_points(name: str, found: Collection[int], done: Experimented, none: str) -> Situation:
    """A situation that is covered where the run is resumed after such a step."""
    if not found:
        return Situation(name, DOES_NOT_APPLY, why=none)
    at = tuple(step for step in done.points if step in found)
    if at:
        return Situation(name, YES, at)
    near = nearest(_resumable(found, done), done.last / 2)
    return Situation(name, NO, why=f"step {near} is such a step", to_cover=f"--resume-at {near}")


def nearest(steps: Collection[int], to: float) -> int:
    """The step that is nearest, the earlier of two."""
    return min(steps, key=lambda step: (abs(step - to), step))


def _resumable(found: Collection[int], done: Experimented) -> list[int]:
    return sorted(step for step in found if 1 <= step < done.last)


def _why_no_update(done: Experimented) -> str:
    if "updates" not in done.course.keeps:
        return "no optimizer was handed over, so that a step without an update cannot be told"
    return "" if done.course.idle else "every step made an update"


def _in_evaluation(reference: Trace, points: Sequence[int]) -> tuple[int, ...]:
    mode = Item("structure", "eval")
    return tuple(step for step in points if reference.text(reference.digest(step, SAVED, mode)) not in (None, "", "[]"))


def _pending(reference: Trace, points: Sequence[int], items: Iterable[Item]) -> frozenset[int]:
    """The points at which what was saved of some item is not what the next step has."""
    kept = list(items)
    return frozenset(
        step for step in points for item in kept
        if None not in (pair := (reference.digest(step, SAVED, item), reference.digest(step + 1, STEP, item)))
        and pair[0] != pair[1]
    )  # fmt: skip

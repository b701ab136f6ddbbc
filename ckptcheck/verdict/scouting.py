"""Where `--resume-at auto` resumes: after the steps at which something is about to happen, or has just happened."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from ckptcheck.verdict.course import Course

MOST: Final = 6
"""Points that are picked at most: each costs a run."""
LEAST: Final = 2
"""Points that are picked at least, where there are so many steps: a second save, and a second resume in a row."""
IN_A_WINDOW: Final = "in the middle of an accumulation window"
HALF: Final = "half of the steps"
BETWEEN: Final = "between updates of an optimizer that rests in some steps"


def picked_points(course: Course) -> tuple[int, ...]:
    """The steps to resume after, ascending: `LEAST` to `MOST` of 1 .. N - 1, where there are so many.

    One for what lies ahead of each kind of event comes first, then one within an accumulation window, then one between
    the updates of each optimizer that rests, then those right behind an event. One lies in the middle of the run: where
    it has just begun, there is little to be lost.
    """
    last = course.steps[-1] if course.steps else 0
    points = list(dict.fromkeys(preferred_points(course)))[:MOST]
    for one in _plain_points(last):
        if len(points) < LEAST and 1 <= one < last and one not in points:
            points.append(one)
    return tuple(sorted(points))


def _plain_points(last: int) -> dict[int, str]:
    """Steps that are as good as any where nothing happens, each with what it is, the first to be picked first."""
    named = ((last // 2, HALF), (last // 4, "a quarter of the steps"), (3 * last // 4, "three quarters of the steps"),
             (1, "the first step"), (last - 1, "the last step but one"))  # fmt: skip
    found: dict[int, str] = {}
    for step, name in named:
        found.setdefault(step, name)
    return found


def preferred_points(course: Course) -> list[int]:
    """The steps for which something speaks, the most telling first; a step may come twice."""
    ahead = [
        *_before(course.overflows),
        *_before_change(course.regroupings),
        *_before(course.epochs),
        *_before_warm_end(course),
    ]
    behind = [*_first(course.epochs), *_first(course.regroupings), *_first(course.overflows)]
    last = course.steps[-1] if course.steps else 0
    windows = sorted(course.windows, key=lambda one: (abs(one - last / 2), one))[:1]
    between = _between(course, [*ahead, *windows])
    half = [] if any(last / 4 <= one <= 3 * last / 4 for one in (*ahead, *windows, *between)) else [last // 2]
    return [one for one in (*ahead, *windows, *between, *half, *behind) if 1 <= one < last]


def _between(course: Course, points: Collection[int]) -> list[int]:
    """Few steps at which each optimizer that rests is between its updates, where none of the points is such a step."""
    last = course.steps[-1] if course.steps else 0
    waiting = [found for found in course.between.values() if found.isdisjoint(points)]
    chosen: list[int] = []
    while waiting:
        steps = frozenset[int]().union(*waiting)
        one = min(steps, key=lambda step: (-sum(step in each for each in waiting), abs(step - last / 2), step))
        chosen.append(one)
        waiting = [found for found in waiting if one not in found]
    return chosen


def reasons_for(course: Course, step: int) -> list[str]:
    """What speaks for resuming after a step, in words that follow "after step k: "."""
    reasons = [IN_A_WINDOW] if step in course.windows else []
    reasons += [BETWEEN] if any(step in found for found in course.between.values()) else []
    reasons += _beside(step, course.epochs, "the end of an epoch")
    if step in _before_warm_end(course):
        reasons.append("before the end of the warm-up")
    reasons += _beside(step, course.overflows, "an overflow")
    change = "a change of the trainable set"
    reasons += [f"before {change}"] if step in _before_change(course.regroupings) else []
    reasons += [f"right after {change}"] if step in course.regroupings else []
    last = course.steps[-1] if course.steps else 0
    if step == last // 2:
        reasons.append(HALF)
    elif not reasons and step in picked_points(course):
        reasons.append(_plain_points(last)[step])
    return reasons


def _beside(step: int, events: Collection[int], what: str) -> list[str]:
    before = [f"right before {what}"] if step + 1 in events else []
    return before + ([f"right after {what}"] if step in events else [])


def _first(events: Iterable[int]) -> list[int]:
    return [min(one for one in events if one > 1)] if any(one > 1 for one in events) else []


def _before(events: Iterable[int]) -> list[int]:
    """The step before the first event that has one before it."""
    return [one - 1 for one in _first(events)]


def _before_change(events: Iterable[int]) -> list[int]:
    """Two steps before the first one that has changed: the change may have been made when the step between ended."""
    return [max(1, one - 2) for one in _first(events)]


def _before_warm_end(course: Course) -> list[int]:
    """The last step after which a resumed run still raises the rate once itself, and then no more."""
    ends: Sequence[int] = sorted({one.last_rise - 2 for one in course.warm_ups if one.stop is not None})
    return [one for one in ends if one >= 1][-1:]

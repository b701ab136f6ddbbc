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


def picked_points(course: Course) -> tuple[int, ...]:
    """The steps to resume after, ascending: `LEAST` to `MOST` of 1 .. N - 1, where there are so many.

    One for what lies ahead of each kind of event comes first, then one within an accumulation window, then those right
    behind an event. One lies in the middle of the run: where it has just begun, there is little to be lost.
    """
    last = course.steps[-1] if course.steps else 0
    points: list[int] = []
    for one in preferred_points(course):
        if len(points) < MOST and one not in points:
            points.append(one)
    for one in (last // 2, last // 4, 3 * last // 4, 1, last - 1):
        if len(points) < LEAST and 1 <= one < last and one not in points:
            points.append(one)
    return tuple(sorted(points))


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
    half = [] if any(last / 4 <= one <= 3 * last / 4 for one in (*ahead, *windows)) else [last // 2]
    return [one for one in (*ahead, *windows, *half, *behind) if 1 <= one < last]


def reasons_for(course: Course, step: int) -> list[str]:
    """What speaks for resuming after a step, in words that follow "after step k: "."""
    reasons = [IN_A_WINDOW] if step in course.windows else []
    reasons += _beside(step, course.epochs, "the end of an epoch")
    if step in _before_warm_end(course):
        reasons.append("before the end of the warm-up")
    reasons += _beside(step, course.overflows, "an overflow")
    change = "a change of the trainable set"
    reasons += [f"before {change}"] if step in _before_change(course.regroupings) else []
    reasons += [f"right after {change}"] if step in course.regroupings else []
    if course.steps and step == course.steps[-1] // 2:
        reasons.append(HALF)
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

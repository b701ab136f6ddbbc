"""CK612 and CK615, over scripts: the steps that a resumed run made again, left out, or lost to a signal."""

from collections.abc import Iterator

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, also, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.course import Course
from ckptcheck.rules.runs.trajectory import steps_missing_or_repeated
from ckptcheck.rules.words import at_load, kept


@also(steps_missing_or_repeated)
def other_steps_than_were_left(case: Case) -> Iterator[Evidence]:
    """The resumed script goes on from another step than the one that it was stopped after, or makes none."""
    course = case.course
    if course is None or not course.astray:
        return
    if course.rank is not None:
        yield Evidence(
            f"the resumed run has no process of rank {course.rank} that trains; the uninterrupted run has one",
            at_load(case.step, rank=course.rank),
            {"missing_rank": course.rank},
            "resume with the same number of processes: the same launcher with the same options",
        )
    elif course.went_on_after is None:
        if case.raised is None:
            yield _no_step(case, course)
    else:
        yield _elsewhere(case, course, course.went_on_after)


def _no_step(case: Case, course: Course) -> Evidence:
    left = list(range(course.copied_after + 1, course.last + 1))
    return Evidence(
        f"the resumed run made no step, where {_steps(left)} {_were(left)} left to make",
        Place(step=left[0]) if left else at_load(case.step),
        {"missing": kept(map(str, left))},
        "look at where the resumed loop starts and stops, and whether the checkpoint is that of the end of the run",
    )


def _elsewhere(case: Case, course: Course, after: int) -> Evidence:
    if course.left_out:
        said = f"so that {_steps(course.left_out)} {_were(course.left_out)} left out"
        fix = "does the resume command read the run's own copy of the output folder? use {dir} or {ckpt} in it"
    else:
        newest = f"although the checkpoint of step {course.newest} was there"
        said = f"so that {_steps(course.again)} {_were(course.again)} made again {newest}"
        fix = "look for how the newest checkpoint is found: names are to be sorted as numbers"
    return Evidence(
        f"the resumed run went on from step {after}, where the run was stopped after step {course.copied_after}, "
        f"{said}",
        Place(step=course.left_out[0]) if course.left_out else at_load(case.step),
        {
            "stopped_after": course.copied_after,
            "went_on_after": after,
            "repeated": kept(map(str, course.again)),
            "left_out": kept(map(str, course.left_out)),
        },
        fix,
    )


@rule("CK615", "interrupt-left-no-checkpoint", Severity.ERROR)
def interrupt_left_no_checkpoint(case: Case) -> Iterator[Evidence]:
    """A signal ended the run, and no checkpoint holds the steps that it had made by then.

    Why: a scheduler that takes a node away sends SIGTERM and waits; what was not saved by then is trained again.
    Example: only periodic checkpoints, and no handler for the signal.
    Fix: save in a handler of the signal, or at the end of the step in which it came, and leave.
    Limits: SIGKILL cannot be handled; there the steps since the last periodic checkpoint are always lost.
    """
    one = case.interruption
    if one is None or not one.lost:
        return
    newest = f"the newest checkpoint is that of step {one.kept}" if one.kept else "there is no checkpoint"
    lost = len(one.lost)
    yield Evidence(
        f"{one.signal} came after step {one.step} and the run {one.how}; {newest}: "
        f"{lost} step{'' if lost == 1 else 's'} lost",
        Place(step=one.step),
        {"signal": one.signal, "signal_after_step": one.step, "newest_checkpoint": one.kept, "steps_lost": lost},
        "save a checkpoint when the signal comes, at the end of the step in progress, and leave then",
    )


def _steps(steps: list[int] | tuple[int, ...]) -> str:
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _were(steps: list[int] | tuple[int, ...]) -> str:
    return "was" if len(steps) == 1 else "were"


RULES = (other_steps_than_were_left, interrupt_left_no_checkpoint)

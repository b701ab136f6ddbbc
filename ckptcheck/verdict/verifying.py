"""Which experiment is asked for, and its settings; nothing heavy is imported before all is checked."""

from typing import Final

from ckptcheck.finding import Result
from ckptcheck.progress import Progress
from ckptcheck.verdict.asking import (
    Commands,
    Question,
    Target,
    asks_about_commands,
    check_bisect,
    check_points,
    check_quick,
    picks,
)

STEPS: Final = 20
"""How many steps a target makes unless told."""


def verified(target: Target, commands: Commands, question: Question, progress: Progress | None) -> Result:
    """Make the experiment on a target or on commands, whichever is named. Raises as `verbs.verify`."""
    about_commands = asks_about_commands(target, commands, question.freeze)
    check_quick(question.quick, question.repeats)
    if question.bisect:
        check_bisect(about_commands, question.policy, (target.device, target.resume_device))
    if question.require:
        from ckptcheck.verdict.demanded import check_demands

        check_demands(question.require, question.select, question.ignore, of_commands=about_commands)
    if about_commands:
        from ckptcheck.verdict.scripts.asking import settings_of
        from ckptcheck.verdict.scripts.verification import verification as verification_of_commands

        return verification_of_commands(settings_of(commands), question, progress)

    from ckptcheck.experiment.target import split_target

    assert target.target is not None
    steps = target.steps if target.steps is not None else STEPS
    points = check_points(steps, target.resume_at)
    split_target(target.target)

    from ckptcheck.experiment.plan import Settings
    from ckptcheck.verdict.verification import verification

    settings = Settings(
        target.target,
        steps,
        points,
        target.device,
        target.resume_device,
        target.seed,
        target.deterministic,
        target.timeout_s,
        target.jobs,
        scouts=picks(target.resume_at),
    )
    return verification(settings, question, progress)

"""What a real interruption left: whether the run stopped, and whether there is anything to resume from."""

from ckptcheck.errors import RunFailedError
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.process import signal_name
from ckptcheck.rules.runs.course import Interruption
from ckptcheck.verdict.scripts.placing import last_step


def check_interrupted(run: Recorded, whole: Recorded, interrupt: tuple[int, int]) -> None:
    """Raise RunFailedError where the run that was to be interrupted made all steps nevertheless."""
    lasts = [max((last_step(trace) for trace in one.traces), default=0) for one in (whole, run)]
    if lasts[1] >= lasts[0] > 0:
        raise RunFailedError(
            f"the interrupted run got {signal_name(interrupt[0])} after step {interrupt[1]} and made all {lasts[0]} "
            f"steps: it was not interrupted; a script that shall stop must not ignore the signal",
            run.last_lines,
        )


def interruption_of(run: Recorded, interrupt: tuple[int, int], kept: int | None) -> Interruption:
    """What the signal left; `kept` is the step of the newest checkpoint, None where nobody knows yet."""
    how = f"left with exit code {run.exit_code}" if run.status in ("failed", "ended") else f"was {_ended(run)}"
    return Interruption(signal_name(interrupt[0]), interrupt[1], kept, how)


def _ended(run: Recorded) -> str:
    number = run.exit_code - 128 if run.exit_code > 128 else -run.exit_code
    return f"killed by {signal_name(number)}" if number > 0 else run.status

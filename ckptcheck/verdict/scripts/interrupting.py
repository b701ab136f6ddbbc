"""What a real interruption left: whether the run stopped, and whether there is anything to resume from."""

import signal
from collections.abc import Iterator
from pathlib import Path

from ckptcheck.errors import RunFailedError
from ckptcheck.experiment.commands.checkpoints import holds_tensors
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.rules.runs.course import Interruption
from ckptcheck.verdict.scripts.placing import last_step


def name_of(number: int) -> str:
    """A signal by its name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def check_interrupted(run: Recorded, whole: Recorded, interrupt: tuple[int, int]) -> None:
    """Raise RunFailedError where the run that was to be interrupted made all steps nevertheless."""
    lasts = [max((last_step(trace) for trace in one.traces), default=0) for one in (whole, run)]
    if lasts[1] >= lasts[0] > 0:
        raise RunFailedError(
            f"the interrupted run got {name_of(interrupt[0])} after step {interrupt[1]} and made all {lasts[0]} steps: "
            f"it was not interrupted; a script that shall stop must not ignore the signal",
            run.last_lines,
        )


def interruption_of(run: Recorded, interrupt: tuple[int, int], kept: int | None) -> Interruption:
    """What the signal left; `kept` is the step of the newest checkpoint, None where nobody knows yet."""
    how = f"left with exit code {run.exit_code}" if run.status in ("failed", "ended") else f"was {_ended(run)}"
    return Interruption(name_of(interrupt[0]), interrupt[1], kept, how)


def _ended(run: Recorded) -> str:
    number = run.exit_code - 128 if run.exit_code > 128 else -run.exit_code
    return f"killed by {name_of(number)}" if number > 0 else run.status


def left_nothing(output: Path | None) -> bool:
    """Whether the run's output folder is there and has no file in it."""
    return output is not None and not any(_files(output))


def left_no_checkpoint(output: Path | None) -> bool:
    """Whether the run's output folder is there and no file in it holds tensors."""
    return output is not None and not any(holds_tensors(one) for one in _files(output))


def _files(folder: Path) -> Iterator[Path]:
    return (one for one in folder.rglob("*") if one.is_file())

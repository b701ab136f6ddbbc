"""What to tell of a run that did not do what an experiment needs."""

from typing import Final

from ckptcheck.errors import RunFailedError
from ckptcheck.experiment.commands.meeting import Meeting
from ckptcheck.experiment.commands.recorded import Recorded

ISOLATED: Final = "a python started with -E, -I or -S, or without our environment, cannot be recorded this way"
BY_HAND: Final = (
    "no optimizer of torch updated anything in it. A training that updates by hand is tested as a target, with a "
    "factory that returns ckptcheck.Run(model, step, optimizer=None)"
)


def check_trained(run: Recorded, meeting: Meeting) -> None:
    """RunFailedError where a run that had to come to its end did not, made no step, or was not recorded."""
    if run.status not in ("ended", "stopped"):
        raise RunFailedError(f"the {run.name} run failed: {run.error}{_hint(run)}", run.last_lines)
    check_recorded(run, meeting)
    reason = why_nothing(run, meeting)
    if reason:
        raise RunFailedError(f"the {run.name} run {reason}", run.last_lines)


def check_recorded(run: Recorded, meeting: Meeting) -> None:
    """RunFailedError where a run was not recorded as it was made: nothing follows from the absence of a step."""
    said = ""
    broken = next((one.header for one in run.traces if one.header.get("broken")), None)
    if not meeting.is_whole:
        said = why_nothing(run, meeting)
    elif run.status not in ("ended", "stopped"):
        return  # how it ended is the news
    elif broken is not None:
        where = f"rank {broken.get('rank', 0)}: {broken['broken']}"
        said = f"was not recorded to its end: the recorder failed ({where})"
    elif meeting.last_step is not None or not meeting.saw_torch:
        said = why_nothing(run, meeting)
    if said:
        raise RunFailedError(f"the {run.name} run {said}", run.last_lines)


def why_nothing(run: Recorded, meeting: Meeting, isolated: str = ISOLATED) -> str:
    """Why a run left no trace of a step; "" where it left one. `isolated` is what to say where torch was not seen."""
    if any(one.steps for one in run.traces):
        return ""
    if not meeting.is_whole:
        return "removed the temporary folder in which it is recorded: it must not"
    if not meeting.saw_torch:
        return f"imported no torch{_before_its_end(run) or f': {isolated}'}"
    broken = next((str(one.header["broken"]) for one in run.traces if one.header.get("broken")), "")
    if broken:
        return f"was not recorded: the recorder failed ({broken})"
    told = meeting.last_step
    unreadable = "; ".join(run.notes) if not run.traces else ""
    if told is not None:
        count = "1 step" if told == 1 else f"{told} steps"
        return f"trained {count}, and nothing recorded is left ({unreadable or 'removed, or no room on the disk'})"
    if unreadable:
        return f"was not recorded: {unreadable}"
    return f"trained no step{_before_its_end(run) or f': {BY_HAND}'}"


def _before_its_end(run: Recorded) -> str:
    """How it ended, where that explains enough; "" where it came to its own end."""
    if run.status in ("ended", "stopped"):
        return ""
    return f" before it was killed (exit code {run.exit_code})" if run.status == "died" else (
        f" before it left with exit code {run.exit_code}"
    )  # fmt: skip


def _hint(run: Recorded) -> str:
    lines = run.last_lines.lower()
    return "; two runs at once may want the same port: use --jobs 1" if "address already in use" in lines else ""

"""What to tell of a run that did not do what an experiment needs."""

from ckptcheck.errors import RunFailedError
from ckptcheck.experiment.commands.meeting import Meeting
from ckptcheck.experiment.commands.recorded import Recorded

_ISOLATED = "a python started with -E, -I or -S, or without our environment, cannot be recorded this way"


def check_trained(run: Recorded, meeting: Meeting) -> None:
    """RunFailedError where a run that had to come to its end did not, made no step, or was not recorded."""
    if run.status not in ("ended", "stopped"):
        raise RunFailedError(f"the {run.name} run failed: {run.error}{_hint(run)}", run.last_lines)
    reason = why_nothing(run, meeting)
    if reason:
        raise RunFailedError(f"the {run.name} run {reason}", run.last_lines)
    for trace in run.traces:
        if trace.header.get("broken"):
            where = f"rank {trace.header.get('rank', 0)}: {trace.header['broken']}"
            raise RunFailedError(f"the {run.name} run was not recorded to its end: the recorder failed ({where})")


def why_nothing(run: Recorded, meeting: Meeting) -> str:
    """Why a run left no trace of a step; "" where it left one."""
    if any(one.steps for one in run.traces):
        return ""
    if not meeting.saw_torch:
        return f"imported no torch: {_ISOLATED}"
    return "trained no step: no optimizer of torch updated anything in it"


def _hint(run: Recorded) -> str:
    lines = run.last_lines.lower()
    return "; two runs at once may want the same port: use --jobs 1" if "address already in use" in lines else ""

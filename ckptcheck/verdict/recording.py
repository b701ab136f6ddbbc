"""A command recorded in the user's own terminal: what was started, how it ended, what was recorded of it."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ckptcheck.errors import OutputError, TraceError, UsageError
from ckptcheck.experiment.commands.handing import run_in_foreground
from ckptcheck.experiment.commands.launching import exit_code, why_not_started, with_traces
from ckptcheck.experiment.commands.meeting import Meeting
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.commands.telling import why_nothing
from ckptcheck.finding import Compared, Finding, Json, NotJudged, Result, Verdict
from ckptcheck.trace.file import Trace
from ckptcheck.trace.injection.environment import recorded
from ckptcheck.trace.injection.pth import placed
from ckptcheck.trace.script.orders import VARIABLE, Orders

RUN: Final = "recording"
_ISOLATED: Final = (
    "a python started with -E, -I or -S needs --pth PYTHON, and one without our environment cannot be recorded"
)
_FACTS: Final = ("torch", "python", "platform", "device", "digest", "flags")


@dataclass(frozen=True, slots=True)
class RecordOrder:
    """What to record, and how.

    Attributes:
        words: the command.
        output: the folder for the traces; it must not hold anything yet.
        every, only, grads, digest: as in `Orders`.
        python: an interpreter that gets a .pth file for so long; None for none.
        select, ignore: rules that judge the loads seen.
    """

    words: tuple[str, ...]
    output: Path
    every: int = 1
    only: tuple[str, ...] = ()
    grads: bool = True
    digest: str | None = None
    python: str | None = None
    select: tuple[str, ...] = ("CK",)
    ignore: tuple[str, ...] = ()


def record_command(order: RecordOrder) -> Result:
    """Run the command in our own terminal and record it: verdict pass where a step was recorded, else error.

    OutputError and UsageError where nothing was started. How the command ended is part of the result.
    """
    if not order.words:
        raise UsageError("no command to record: give it after --, such as `-- python train.py`")
    if _is_recorded_already():
        return _handed_through(order)
    with ExitStack() as stack:
        folder = stack.enter_context(_own_folder(order.output))
        scratch = Path(stack.enter_context(_scratch()))
        if order.python is not None:
            stack.enter_context(placed(order.python))
        meeting = Meeting(scratch / "control")
        stack.callback(meeting.close)
        run = _run(order, folder, scratch, meeting)
        result = _result(order, run, meeting)
        for trace in run.traces:
            trace.close()
    return result


def _is_recorded_already() -> bool:
    """Whether our environment is that of a recording that goes on."""
    return VARIABLE in os.environ and Path(os.environ[VARIABLE]).is_file()


def _handed_through(order: RecordOrder) -> Result:
    """Run the command inside somebody else's recording, which records it, and say so."""
    run = _foreground(order, os.environ)
    said = "another ckptcheck around this one records already: nothing was recorded here"
    return _result(order, run if run.error else replace(run, error=said), None)


@contextmanager
def _own_folder(folder: Path) -> Iterator[Path]:
    """Make the folder, or refuse it with OutputError before anything is started: its absolute path.

    While it is ours no other recording takes it; it goes again where nothing was recorded. The script may go elsewhere,
    or remove it, or remove the folder that we stand in.
    """
    taken = OutputError(f"{folder} exists already and is never written over: name a new folder, or remove it")
    try:
        folder = folder.resolve()
        is_new = not folder.exists()
        if not is_new and not folder.is_dir():
            raise taken
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error.strerror}): name a folder that can") from error
    try:
        _claim(folder, lock, taken)
        yield folder
        if is_new:
            with suppress(OSError):  # it holds something, or the script has removed it
                folder.rmdir()
    finally:
        os.close(lock)


def _claim(folder: Path, lock: int, taken: OutputError) -> None:
    try:
        _lock(lock)
        if any(folder.iterdir()):
            raise taken
        # Only a try tells of disks that are full or read-only.
        tempfile.TemporaryFile(dir=folder).close()
    except BlockingIOError:
        raise OutputError(f"another recording writes into {folder}: name a folder of its own") from None
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error.strerror}): name a folder that can") from error


def _lock(number: int) -> None:
    """BlockingIOError where another process has locked it. Some file systems have no locks; there nobody is told."""
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return


def _scratch() -> "tempfile.TemporaryDirectory[str]":
    try:
        return tempfile.TemporaryDirectory(prefix="ckptcheck-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OutputError(f"no temporary folder can be made ({error}); set TMPDIR to one with room") from error


def _run(order: RecordOrder, folder: Path, scratch: Path, meeting: Meeting) -> Recorded:
    orders = Orders(
        traces=folder,
        run=RUN,
        command=order.words,
        digest=order.digest,
        every=order.every,
        only=order.only,
        grads=order.grads,
        control=meeting.control,
    )
    environment = recorded(orders, scratch / "orders.json")
    return with_traces(_foreground(order, environment), folder)


def _foreground(order: RecordOrder, environment: Mapping[str, str]) -> Recorded:
    try:
        returned = run_in_foreground(order.words, environment)
    except OSError as error:
        code, said = why_not_started(error, order.words)
        return Recorded(RUN, order.words, "failed", code, error=said)
    status = "ended" if returned == 0 else "failed" if returned > 0 else "died"
    return Recorded(RUN, order.words, status, exit_code(returned))


def _result(order: RecordOrder, run: Recorded, meeting: Meeting | None) -> Result:
    error = run.error or (_nothing_recorded(run, meeting) if meeting is not None else "")
    findings, not_judged = _seen(order, run.traces)
    steps = [len(one.steps) for one in run.traces]
    part: dict[str, Json] = {
        "command": list(run.words),
        "exit_code": run.exit_code,
        "status": run.status,
        "trace": str(order.output),
        "steps": max(steps, default=0),
        "processes": [_process(one) for one in run.traces],
        "notes": [*run.notes, *_idle_pattern(run.traces)],
    }
    return Result(
        command="record",
        verdict=Verdict.ERROR if error else Verdict.PASS,
        compared=Compared(),
        findings=findings,
        not_judged=not_judged,
        environment=_facts(run.traces),
        parts={"recorded": part},
        error=error,
    )


def _idle_pattern(traces: tuple[Trace, ...]) -> list[str]:
    """A sentence on a glob of `--only` that nothing has a name for."""
    from ckptcheck.verdict.left_out import idle_pattern

    idle = idle_pattern(one for one in traces if one.steps)
    return [f"--only {idle!r} matches no parameter and no buffer"] if idle is not None else []


def _nothing_recorded(run: Recorded, meeting: Meeting) -> str:
    reason = why_nothing(run, meeting, _ISOLATED)
    if not reason:
        return ""
    raised = next((str(one.header["raised"]) for one in run.traces if one.header.get("raised")), "")
    if raised:
        return f"no step was recorded: {Path(run.words[0]).name} raised {raised} before its first update"
    return f"nothing was recorded: {Path(run.words[0]).name} {reason}"


def _seen(order: RecordOrder, traces: tuple[Trace, ...]) -> tuple[tuple[Finding, ...], tuple[NotJudged, ...]]:
    """What the rules say of the loads in the traces; ranks that say the same say it once."""
    from ckptcheck.verdict.loads_seen import loads_seen

    findings: dict[tuple[str, str], Finding] = {}
    unjudged: dict[NotJudged, None] = {}
    for trace in traces:
        try:
            told, not_judged = loads_seen(trace, order.select, order.ignore)
        except TraceError as error:
            told, not_judged = (), (NotJudged("CK601", str(error)),)
        for one in told:
            findings.setdefault((one.code, one.message), one)
        unjudged.update(dict.fromkeys(not_judged))
    return tuple(findings.values()), tuple(unjudged)


def _process(trace: Trace) -> dict[str, Json]:
    header: Mapping[str, Json] = trace.header
    steps = trace.steps
    return {
        "file": trace.path.name,
        "rank": header.get("rank", 0),
        "pid": header.get("pid"),
        "steps": len(steps),
        "last_step": steps[-1] if steps else 0,
        "ended": trace.ended,
        "cost_s": header.get("recording_s"),
        "raised": header.get("raised"),
    }


def _facts(traces: tuple[Trace, ...]) -> dict[str, Json]:
    return {key: value for key, value in traces[0].header.items() if key in _FACTS} if traces else {}

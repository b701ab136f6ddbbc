"""One run of a command: started in a session of its own, watched for progress, always ended with all it started."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ckptcheck.errors import RunFailedError, TraceError
from ckptcheck.experiment.commands import processes
from ckptcheck.experiment.commands.meeting import Meeting, Steered
from ckptcheck.experiment.commands.recorded import Recorded, not_seen
from ckptcheck.experiment.process import last_bytes, last_lines, signal_name
from ckptcheck.progress import Progress
from ckptcheck.trace.injection.environment import recorded
from ckptcheck.trace.reading import Trace, open_traces
from ckptcheck.trace.script.orders import VARIABLE, Orders

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
"""Exit codes as a shell has them."""
LOOK_S: Final = 0.02
"""How often a run is looked at."""
STOPPED_GRACE_S: Final = 1.0
"""How long helpers of a stopped run may take to clean up."""
TALK_TIMES: Final = 10
"""So many times as long as without a sign a run may go on printing without a step."""
MAX_LOG_BYTES: Final = 64 << 20
"""Of a longer log only the end is kept."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        orders: how its processes record; its control folder must not exist yet.
        words: the command.
        folder: where it runs.
        environment: all its variables.
        scratch: takes its log and its orders.
        timeout_s: how long it may neither make a step nor print anything; it may print without a step `TALK_TIMES` as
            long.
        steps: how many steps are expected; None where nobody knows.
        output: the folder that it writes into; None where it has none of its own.
        at_pause: what to do while all ranks wait after `orders.pause_after`.
        before_signal: what to do before `orders.signal_after` is sent.
    """

    orders: Orders
    words: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    scratch: Path
    timeout_s: float
    steps: int | None = None
    output: Path | None = None
    at_pause: Callable[[], None] | None = None
    before_signal: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.orders.run


class Run:
    """A run that was started. `is_over` is to be called again and again; `result` tells how it ended."""

    def __init__(self, launch: Launch, progress: Progress | None) -> None:
        assert launch.orders.control is not None
        launch.orders.traces.mkdir(parents=True)
        self.launch = launch
        self.meeting = Meeting(launch.orders.control)
        self._steered = Steered(self.meeting, launch.at_pause or _nothing, self._send)
        self._progress = progress
        self._log = launch.scratch / "log"
        self._orders = launch.scratch / "orders.json"
        self._started = time.monotonic()
        self._heard = self._stepped = self._started
        self._seen: tuple[int, int | None, int] = (0, None, 0)
        self._status = ""
        self._hung = ""
        self._ended: float | None = None
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        launch = self.launch
        environment = recorded(launch.orders, self._orders, launch.environment)
        with self._log.open("ab") as log:
            try:
                return subprocess.Popen(
                    launch.words, cwd=launch.folder, env=environment, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                )  # fmt: skip
            except OSError as error:
                self.meeting.close()
                said = why_not_started(error, launch.words)[1]
                raise RunFailedError(f"the {launch.name} run cannot start: {said}") from error

    def is_over(self) -> bool:
        """Look at it: let waiting processes go on, take note of progress; whether it has ended, or was ended."""
        if self._process.returncode is not None:
            return True
        if self._steered.attend():
            self._status = "stopped"
            self.end()
        elif self._process.poll() is not None:
            self.end()
        elif self._is_silent():
            self._status = "hung"
            self.end()
        return self._process.returncode is not None

    def _is_silent(self) -> bool:
        step, now, limit_s = self.meeting.last_step, time.monotonic(), self.launch.timeout_s
        seen = (_size(self._log), step, sum(_size(one) for one in self.launch.orders.traces.glob("*")))
        if seen != self._seen:
            if seen[1:] != self._seen[1:]:
                self._stepped = now
            self._heard, self._seen = now, seen
            if self._progress is not None:
                self._progress.update(self.launch.name, "train" if step else "start", step, self.launch.steps)
            self._cut_log(seen[0])
        if now - self._heard > limit_s:
            self._hung = f"it made no step and printed nothing for {limit_s:g} s"
        elif now - self._stepped > TALK_TIMES * limit_s:
            self._hung = f"it made no step for {TALK_TIMES * limit_s:g} s, though it printed; --timeout gives it longer"
        return bool(self._hung)

    def _cut_log(self, size: int) -> None:
        """Keep a run that prints without end from filling the disk: it writes at the end of its log, wherever that is.

        What it writes in between may be lost.
        """
        if size > MAX_LOG_BYTES:
            with suppress(OSError):
                end = last_bytes(self._log)
                os.truncate(self._log, 0)
                with self._log.open("ab") as log:
                    log.write(end)

    def _send(self) -> None:
        assert self.launch.orders.signal_after is not None
        if self.launch.before_signal is not None:
            self.launch.before_signal()
        # A scheduler tells the process that it started, which passes the signal on as it likes.
        os.kill(self._process.pid, self.launch.orders.signal_after[0])

    def end(self, *, at_once: bool = False) -> None:
        """End it and everything that it started, if it has not gone by itself; `at_once` gives it no time for that."""

        def others() -> list[int]:
            return processes.with_variable(VARIABLE, str(self._orders.resolve()))

        if self._status == "stopped":
            for one in self.meeting.processes("stopped"):
                processes.kill(one)
            processes.kill(self._process.pid)
            processes.wait_for_all(self._process, others, STOPPED_GRACE_S)
        processes.end(self._process, others, gently=self._status != "stopped" and not at_once)
        self.meeting.close()
        self._ended = self._ended or time.monotonic()

    def result(self) -> Recorded:
        """How it ended, and what it recorded; its traces are open."""
        code = self._process.returncode
        status = self._status or ("ended" if code == 0 else "failed" if code > 0 else "died")
        launch = self.launch
        run = Recorded(
            name=launch.name,
            words=launch.words,
            status=status,
            exit_code=0 if status == "stopped" else exit_code(code),
            last_lines="" if status in ("ended", "stopped") else last_lines(self._log),
            total_s=(self._ended or time.monotonic()) - self._started,
            output=launch.output,
        )
        return with_traces(replace(run, error=self._hung or _error(run)), launch.orders.traces)


def run_all(launches: Sequence[Callable[[], Launch]], at_once: int, progress: Progress | None) -> list[Run]:
    """Make runs that do not depend on each other, at most `at_once` side by side; whatever happens, all are ended.

    Each launch is made when its turn comes.
    """
    runs: list[Run] = []
    going: list[Run] = []
    waiting = list(launches)
    try:
        while waiting or going:
            if waiting and len(going) < at_once:
                runs.append(Run(waiting.pop(0)(), progress))
            going = [one for one in runs if not one.is_over()]
            time.sleep(LOOK_S)
    finally:
        _end_all(runs)
    return runs


def _end_all(runs: Sequence[Run]) -> None:
    try:
        for one in runs:
            one.end()
    except KeyboardInterrupt:  # asked a second time: nobody waits any more
        for one in runs:
            one.end(at_once=True)
        raise


def exit_code(returncode: int) -> int:
    """An exit code as a shell gives it: 128 + n for signal n."""
    return returncode if returncode >= 0 else 128 - returncode


def why_not_started(error: OSError, words: Sequence[str]) -> tuple[int, str]:
    """(exit code, one line) for a command that cannot be started."""
    if isinstance(error, FileNotFoundError):
        hint = "check its name, or give its path"
        if words[0].endswith(".py"):
            hint = f"start it as python {words[0]}"
        elif Path(words[0]).exists():
            hint = "what its first line names as its interpreter is not there"
        return NOT_FOUND, f"there is no command {words[0]!r}: {hint}"
    hint = "make it executable, or start it with its interpreter" if isinstance(error, PermissionError) else (
        "start it with its interpreter, such as python or bash"
    )  # fmt: skip
    return NOT_EXECUTABLE, f"{words[0]!r} cannot be executed ({error.strerror}): {hint}"


def with_traces(run: Recorded, folder: Path) -> Recorded:
    """The run with the traces in a folder, by rank and start, and with what they say of the recording itself."""
    traces: list[Trace] = []
    notes: list[str] = []
    for file in sorted(folder.glob("*.trace")):
        try:
            traces.extend(open_traces(file))
        except TraceError as error:
            notes.append(str(error))
    # Of several processes of one rank the names tell ids, which come in another order in every run.
    traces.sort(key=lambda one: (one.header.get("rank", 0), str(one.header.get("started", "")), one.path.name))
    for trace in traces:
        notes += [f"rank {trace.header.get('rank', 0)}: {one}" for one in not_seen(trace)]
    return replace(run, traces=tuple(traces), notes=tuple(notes))


def _error(run: Recorded) -> str:
    if run.status == "failed":
        return f"it left with exit code {run.exit_code}"
    if run.status == "died":
        return f"it was killed by {signal_name(run.exit_code - 128)}"
    return ""


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _nothing() -> None:
    return None

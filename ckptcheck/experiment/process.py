"""Worker processes as the parent sees them: started fresh, listened to, limited in time, always cleaned up."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final, Protocol

from ckptcheck.errors import TargetError
from ckptcheck.experiment.job import Errand, Outcome
from ckptcheck.progress import Progress

LAST_LINES: Final = 12
"""How many of the last printed lines are shown of a run that failed."""
LOOK_S: Final = 1.0
"""How often a silent worker is looked at."""
GRACE_S: Final = 5.0
"""How long a worker may take to go away after its last event, or after it is told to."""


class Lockstep(Protocol):
    """Who lets workers go on that wait for each other; called from several threads."""

    def captured(self, job: Errand, step: int, moment: str) -> None:
        """A worker has laid out a captured moment and goes on when this returns."""

    def ended(self, job: Errand) -> None:
        """A worker has gone."""


class Started(Protocol):
    """A process that was started: what a worker needs of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its process id, which is its group's too."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs, as far as was looked."""
        ...

    def poll(self) -> int | None:
        """Look whether it has ended."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; subprocess.TimeoutExpired after `timeout` seconds."""
        ...


def start_fresh(
    module: str, order: Path, pipes: tuple[int, int], log: IO[bytes], environment: Mapping[str, str]
) -> Started:
    """Start a new interpreter on a job: its own hash seed, addresses and generators, and a session of its own.

    `pipes` are the descriptors to tell events on, and to read the answers to them from.
    """
    # -P: the folder that the user stands in is no place to import from; a target's own folder is added by name.
    command = [sys.executable, "-P", "-m", module]
    return subprocess.Popen(
        [*command, str(order), *map(str, pipes)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        pass_fds=pipes,
        start_new_session=True,
    )


class Worker:
    """One worker process. `run` starts it and waits for its end."""

    def __init__(
        self, job: Errand, folder: Path, timeout_s: float, progress: Progress | None, threads: int | None
    ) -> None:
        self.job = job
        self._log = folder / f"{job.name}.log"
        self._order = folder / f"{job.name}.job.json"
        self._timeout_s = timeout_s
        self._progress = progress
        self._threads = threads
        self._process: Started | None = None
        self._phase, self._step = "start", None
        self._told: dict[str, Any] = {"facts": {}}

    def run(self, lockstep: Lockstep | None = None) -> Outcome:
        """Run the job to its end. Raises TargetError when the target is refused; anything else is an Outcome."""
        self._order.write_text(self.job.to_json())
        self.job.workdir.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        events, theirs = os.pipe()
        their_acks, acks = os.pipe()
        try:
            with self._log.open("wb") as log:
                self._start(log, theirs, their_acks)
            os.close(theirs)
            os.close(their_acks)
            alive = self._listen(events, acks, lockstep)
        finally:
            os.close(events)
            os.close(acks)
            self.stop()
        if "refused" in self._told:
            raise TargetError(self._told["refused"])
        return self._outcome(alive, time.perf_counter() - started)

    def _start(self, log: IO[bytes], events: int, acks: int) -> None:
        environment = dict(os.environ)
        if self._threads is not None:
            environment.setdefault("OMP_NUM_THREADS", str(self._threads))
        if self.job.deterministic:
            environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        self._process = start_fresh(self.job.module, self._order, (events, acks), log, environment)

    def _listen(self, events: int, acks: int, lockstep: Lockstep | None) -> bool:
        """Follow events until the worker closes its end; False when it was silent beyond the time limit."""
        rest = b""
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(events, selectors.EVENT_READ)
            while True:
                if not selector.select(min(self._timeout_s, LOOK_S)):
                    # What the worker forked may hold its end open when it has gone.
                    if self._process is not None and self._process.poll() is not None:
                        return True
                    if time.monotonic() - heard >= self._timeout_s:
                        return False
                    continue
                heard = time.monotonic()
                chunk = os.read(events, 1 << 16)
                if not chunk:
                    return True
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(json.loads(line), acks, lockstep)
                if self._told.keys() & {"ended", "raised", "refused"}:
                    # Grandchildren may hold the pipe open; the worker itself has said its last word.
                    return True

    def _take(self, event: dict[str, Any], acks: int, lockstep: Lockstep | None) -> None:
        if "phase" in event:
            self._phase, self._step = event["phase"], event["step"]
            if self._progress is not None:
                self._progress.update(self.job.name, self._phase, self._step, self.job.last)
        elif "captured" in event:
            if lockstep is not None:
                lockstep.captured(self.job, *event["captured"])
            with contextlib.suppress(BrokenPipeError):
                os.write(acks, b"\n")
        elif "facts" in event:
            self._told["facts"].update(event["facts"])
        else:
            self._told.update(event)

    def stop(self) -> None:
        """End the worker and everything that it started, if it has not gone by itself."""
        process = self._process
        if process is None:
            return
        if self._told.keys() & {"ended", "raised", "refused"}:
            # Threads of the user's own, an asynchronous save say, may finish what they began.
            _wait(process, self._timeout_s if "ended" in self._told else GRACE_S)
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            _wait(process, GRACE_S)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def _outcome(self, alive: bool, total_s: float) -> Outcome:
        assert self._process is not None
        code = self._process.wait()
        if "ended" in self._told:
            status, error = "ended", ""
        elif "raised" in self._told:
            status, error = "raised", self._told["raised"]
        elif not alive:
            status, error = "hung", f"no progress for {self._timeout_s:g} s"
        else:
            status, error = (
                "died",
                f"killed by {signal_name(-code)}" if code < 0 else f"left with exit code {code}",
            )
        return Outcome(
            name=self.job.name,
            status=status,
            phase=self._phase,
            step=self._step,
            error=error,
            last_lines="" if status == "ended" else last_lines(self._log),
            total_s=total_s,
            training_s=self._told.get("training_s", 0.0),
            recording_s=self._told.get("recording_s", 0.0),
            facts=self._told["facts"],
        )


def _wait(process: Started, seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _signal_group(process: Started, number: signal.Signals) -> None:
    # The group outlives its leader while data-loader processes run, and is gone when none does.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def signal_name(number: int) -> str:
    """The name of a signal, as kill -l has it."""
    try:
        return signal.Signals(number).name
    except ValueError:  # of the real-time ones only the first and the last have names
        first = int(getattr(signal, "SIGRTMIN", number))
        return f"SIGRTMIN+{number - first}" if number > first else f"signal {number}"


def last_lines(log: Path) -> str:
    """The last lines that a run printed; "" where its log has gone."""
    try:
        text = last_bytes(log).decode("utf-8", "replace")
    except FileNotFoundError:  # a run may remove what is not its own
        return ""
    return "\n".join(_without_launcher(text).rstrip().split("\n")[-LAST_LINES:])


def _without_launcher(text: str) -> str:
    """Without what torchrun says at its end of a process that failed, which has said more of it before."""
    end = text.rfind("errors.ChildFailedError")
    begin = text.rfind("Traceback (most recent call last):", 0, end) if end >= 0 else -1
    return text[:begin] if begin > 0 and text[:begin].strip() else text


def last_bytes(log: Path) -> bytes:
    """The end of a log. OSError where it cannot be read."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 14)))
        return file.read()


class Crew:
    """Starts workers, at most `at_once` side by side, and stops all of them when one is interrupted.

    `folder` takes logs and orders. On the CPU the cores are shared out among runs side by side, unless the
    user's environment says how many threads to use: more threads than cores slow training by whole factors.
    """

    def __init__(self, folder: Path, timeout_s: float, progress: Progress | None, at_once: int) -> None:
        self._folder = folder
        self._timeout_s = timeout_s
        self._progress = progress
        self.at_once = at_once

    def run(self, jobs: Sequence[Errand], lockstep: Lockstep | None = None) -> list[Outcome]:
        """Run jobs that do not depend on each other; their outcomes in the same order.

        With `lockstep` all of them run at once, since they wait for each other.
        """

        def run_one(worker: Worker) -> Outcome:
            try:
                return worker.run(lockstep)
            finally:
                if lockstep is not None:
                    lockstep.ended(worker.job)

        width = len(jobs) if lockstep is not None else min(self.at_once, len(jobs))
        workers = [Worker(job, self._folder, self._timeout_s, self._progress, self._threads()) for job in jobs]
        with ThreadPoolExecutor(max_workers=max(width, 1)) as pool:
            futures = [pool.submit(run_one, worker) for worker in workers]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                for worker in workers:
                    worker.stop()
                raise

    def _threads(self) -> int | None:
        # The same for every run of an experiment: another thread count is another summation order.
        return max(1, (os.cpu_count() or 1) // self.at_once) if self.at_once > 1 else None


def default_at_once(device: str) -> int:
    """Two runs side by side on a CPU with at least two cores; one on a GPU, whose memory they would share."""
    return 2 if device.split(":", maxsplit=1)[0] == "cpu" and (os.cpu_count() or 1) >= 2 else 1

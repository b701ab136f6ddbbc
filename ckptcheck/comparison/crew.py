"""A few threads that work off a list of jobs, each with memory of its own that it uses again and again."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

MAX_THREADS: Final = 2
"""More would gain little, since comparing holds the interpreter's lock, and a reader of compressed members goes on from
two positions at most."""

T = TypeVar("T")


class Worker:
    """One thread's memory, and its ear for the signal to stop."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self.left = bytearray()
        self.right = bytearray()

    def views(self, left_bytes: int, right_bytes: int) -> tuple[memoryview, memoryview]:
        """Writable views of the first bytes of `left` and `right`, which grow to what is asked for."""
        if len(self.left) < left_bytes:
            self.left = bytearray(left_bytes)
        if len(self.right) < right_bytes:
            self.right = bytearray(right_bytes)
        return memoryview(self.left)[:left_bytes], memoryview(self.right)[:right_bytes]

    def check(self) -> None:
        """Leave the job where another thread failed or the user interrupted; to be called between two reads."""
        if self._stop.is_set():
            raise _StoppedError


class _StoppedError(Exception):
    """Ends a job that nobody waits for any more."""


def thread_count() -> int:
    """Threads worth starting: one a processor that this process may use, `MAX_THREADS` at most."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, MAX_THREADS)


def work_off(jobs: Iterable[T], work: Callable[[T, Worker], None], threads: int) -> None:
    """Call `work` once for every job, begun in their order, on this thread and `threads - 1` others.

    The first exception of any thread stops the others at their next `Worker.check` and is raised; an interrupt too.
    """
    queue = _Queue(jobs)
    troubles: list[BaseException] = []

    def aside() -> None:
        try:
            queue.work(work)
        except BaseException as trouble:  # noqa: BLE001 (it is raised in the calling thread)
            troubles.append(trouble)

    others = [threading.Thread(target=aside, daemon=True) for _ in range(threads - 1)]
    try:
        for one in others:
            one.start()
        queue.work(work)
        for one in others:
            one.join()
    finally:
        queue.stop.set()
        for one in others:
            one.join()
    if troubles:
        raise troubles[0]


class _Queue(Generic[T]):
    def __init__(self, jobs: Iterable[T]) -> None:
        self.stop = threading.Event()
        self._waiting = iter(jobs)
        self._lock = threading.Lock()

    def work(self, work: Callable[[T, Worker], None]) -> None:
        """Work until no job is left or the signal comes; give it where a job fails."""
        worker = Worker(self.stop)
        try:
            for job in self._jobs():
                work(job, worker)
        except _StoppedError:
            return
        except BaseException:
            self.stop.set()
            raise

    def _jobs(self) -> Iterator[T]:
        while not self.stop.is_set():
            with self._lock:
                try:
                    job = next(self._waiting)
                except StopIteration:
                    return
            yield job

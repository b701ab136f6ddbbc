"""A thread that does one thing after the other beside the script, and never keeps the interpreter from ending."""

import os
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeAlias

_LOOK_EVERY_S = 1.0
"""How often one who waits makes sure that the thread still lives."""


class Job:
    """Something to do. `wait` returns once it is done, well or not."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._done = Event()
        self._thread: Thread | None = None

    def do(self) -> None:
        """Do it, and let go of all that it holds."""
        work, self._work = self._work, None
        try:
            if work is not None:
                work()
        finally:
            del work
            self._done.set()

    def wait(self) -> None:
        """Return when it is done. RuntimeError where the thread has died, as it does when the interpreter ends."""
        while not self._done.wait(_LOOK_EVERY_S):
            if self._thread is not None and not self._thread.is_alive():
                raise RuntimeError("the thread that measures has ended early")

    def given_to(self, thread: Thread) -> None:
        """Note who does it."""
        self._thread = thread


_Queue: TypeAlias = "SimpleQueue[Job | None]"


class Worker:
    """Does jobs in their order, from the next `go` on; where no thread can be started, at once.

    `complain` raises what went wrong in one. A fork waits for the jobs first, so that the child finds nothing held.
    """

    def __init__(self) -> None:
        self._queue: _Queue = SimpleQueue()
        self._thread: Thread | None = None
        self._next: deque[Job] = deque()
        self._last: Job | None = None
        self._alone = False
        self._troubles: list[BaseException] = []
        _workers.add(self)

    def do(self, work: Callable[[], None]) -> Job:
        """Have something done, once `go` is called; returns at once."""
        job = Job(work)
        if self._thread is None and not self._alone:
            self._start()
        if self._thread is None:
            _run(job, self._troubles)
        else:
            job.given_to(self._thread)
            self._next.append(job)
        return job

    def go(self) -> None:
        """Begin with what there is to do.

        Two threads of python take turns. While the main thread has much to do in python itself it is better left
        alone: each call of torch would let the other thread in, and would have to wait until that lets go.
        """
        while self._next:
            with suppress(IndexError):  # another thread forks, and so has it begun at the same moment
                self._last = job = self._next.popleft()
                self._queue.put(job)

    def _start(self) -> None:
        thread = Thread(target=_work, args=(self._queue, self._troubles), name="ckptcheck-recording", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # at the end of the interpreter, or where threads are limited
            self._alone = True
        else:
            self._thread = thread

    def complain(self) -> None:
        """Raise what has gone wrong, once."""
        if self._troubles:
            raise self._troubles.pop(0)

    def idle(self) -> None:
        """Return when everything is done."""
        self.go()
        if self._last is not None:
            self._last.wait()
            self._last = None

    def end(self) -> None:
        """Return when everything is done and the thread has ended; what comes later is done at once."""
        self.go()
        thread, self._thread, self._alone, self._last = self._thread, None, True, None
        if thread is not None:
            self._queue.put(None)
            thread.join()


def _work(queue: _Queue, troubles: list[BaseException]) -> None:
    while (job := queue.get()) is not None:
        _run(job, troubles)
        del job


def _run(job: Job, troubles: list[BaseException]) -> None:
    try:
        job.do()
    except BaseException as trouble:  # noqa: BLE001 (it is raised in the calling thread)
        troubles.append(trouble)


_workers: "weakref.WeakSet[Worker]" = weakref.WeakSet()


def _before_fork() -> None:
    for worker in list(_workers):
        worker.idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)

"""A thread that does one thing after the other beside the script.

It has ended before the interpreter is taken down, however that comes about: a thread that is inside of torch then would
abort the process. It finishes what it was given first, which takes a fraction of a second.
"""

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, RLock
from typing import TypeAlias

from ckptcheck.trace.script.guard import belongs_to_script
from ckptcheck.trace.script.plainly import plainly
from ckptcheck.trace.script.unseen_thread import UnseenThread

_LOOK_EVERY_S = 1.0
"""How often one who waits makes sure that the thread still lives."""


class Job:
    """Something to do. `wait` returns once it is done, well or not."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._done = Event()
        self._thread: UnseenThread | None = None

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

    def given_to(self, thread: UnseenThread) -> None:
        """Note who does it."""
        self._thread = thread


_Queue: TypeAlias = "SimpleQueue[Job | None]"


class Worker:
    """Does jobs in their order, from the next `go` on; at once where no thread can be started, or it has ended.

    `complain` raises what went wrong in one. A fork waits for the jobs first, so that the child finds nothing held.
    """

    def __init__(self) -> None:
        self._queue: _Queue = SimpleQueue()
        self._thread: UnseenThread | None = None
        self._process = os.getpid()
        self._next: deque[Job] = deque()
        self._last: Job | None = None
        self._over = False
        self._lock = RLock()
        """Between who hands over and who ends: several threads may train while the main one comes to its end."""
        self._troubles: list[BaseException] = []
        _workers.add(self)

    def do(self, work: Callable[[], None]) -> Job:
        """Have something done, once `go` is called; returns at once."""
        job = Job(work)
        with self._lock:
            if self._thread is None and not self._over:
                self._start()
            thread = self._thread
            if thread is not None and not self._over:
                job.given_to(thread)
                self._next.append(job)
                return job
        if thread is not None and not thread.is_current():
            thread.join()  # what was handed over before comes first
        try:
            job.do()
        except Exception as trouble:
            if belongs_to_script(trouble):
                raise
            self._troubles.append(trouble)
        return job

    def go(self) -> None:
        """Begin with what there is to do.

        Two threads of python take turns. While the main thread has much to do in python itself it is better left
        alone: each call of torch would let the other thread in, and would have to wait until that lets go.
        """
        if self._next:
            with self._lock:
                while self._next:
                    self._last = job = self._next.popleft()
                    self._queue.put(job)

    def _start(self) -> None:
        _end_with_the_interpreter()
        thread = UnseenThread(self._work)
        try:
            thread.start()
        except RuntimeError:  # at the end of the interpreter, or where threads are limited
            self._over = True
        else:
            self._thread = thread

    def complain(self) -> None:
        """Raise what has gone wrong, once."""
        if self._troubles:
            raise self._troubles.pop(0)

    def idle(self) -> None:
        """Return when everything is done."""
        self.go()
        last = self._last
        if last is not None:
            last.wait()
            self._last = None

    def end(self) -> None:
        """Return when everything is done and the thread has ended; what comes later is done at once."""
        if os.getpid() != self._process:
            return  # a fork takes no thread along
        with self._lock:
            self.go()
            thread, over, self._over, self._last = self._thread, self._over, True, None
            if thread is not None and not over:
                self._queue.put(None)
        if thread is not None and not thread.is_current():
            thread.join()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            self._run(job)
            del job

    def _run(self, job: Job) -> None:
        try:
            plainly(job.do)
        except BaseException as trouble:  # noqa: BLE001 (it is raised in the calling thread)
            self._troubles.append(trouble)


_workers: "weakref.WeakSet[Worker]" = weakref.WeakSet()
_ending: set[int] = set()
"""The processes in which all workers are ended with the interpreter."""


def _end_with_the_interpreter() -> None:
    # Before the interpreter joins other threads, and again where something else that is called there has raised.
    if os.getpid() in _ending:
        return
    _ending.add(os.getpid())
    atexit.register(_end_all)
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with suppress(RuntimeError):  # it has begun to end; what is registered with atexit is still called
            register(_end_all)


def _end_all() -> None:
    for worker in list(_workers):
        worker.end()


def _before_fork() -> None:
    for worker in list(_workers):
        worker.idle()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)

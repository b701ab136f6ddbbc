"""A thread that the script does not see: it is not in threading's tables, and takes none of the process's signals."""

import _thread
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

_LOOK_EVERY_S: Final = 1.0
"""How often one who waits makes sure that the thread still lives."""
_OF_THE_THREAD: Final = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
"""Signals of what a thread does itself."""


class UnseenThread:
    """Runs a function beside the script. A script that joins all threads there are would wait for a listed one."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work
        self._done = threading.Event()
        self._handle: Any = None
        self._lock: Any = None
        """Let go of by the interpreter when the thread is gone, even where it ends it in the middle."""
        self.ident: int | None = None

    def start(self) -> None:
        """Begin. RuntimeError at the end of the interpreter, or where threads are limited."""
        start_joinable: Any = getattr(_thread, "start_joinable_thread", None)  # of python 3.13 and later
        whole = self._whole(threading.get_ident())
        next(whole)
        with _no_signals():
            if start_joinable is not None:
                self._handle = start_joinable(partial(next, whole, None), daemon=True)
            else:
                _thread.start_new_thread(next, (whole, None))

    def _whole(self, starter: int) -> Iterator[None]:
        # Until a thread runs, python has it under the number of the one that starts it: an exception that is set in
        # that one by its number may arrive here, as the first thing that happens. This is inside the try by then.
        strayed = None
        try:
            yield
        except BaseException as exception:  # noqa: BLE001 (it belongs to the starter)
            strayed = type(exception)
        try:
            if strayed is not None:
                _raise_in(starter, strayed)
            self._run()
        finally:
            self._done.set()

    def _run(self) -> None:
        sentinel: Any = getattr(_thread, "_set_sentinel", None)
        if sentinel is not None:
            lock = sentinel()
            lock.acquire()
            self._lock = lock
        self.ident = threading.get_ident()
        work, self._work = self._work, None
        if work is not None:
            work()

    def is_alive(self) -> bool:
        """Whether it runs, or is about to."""
        if self._handle is not None:
            return not self._handle.is_done()
        return self._lock.locked() if self._lock is not None else not self._done.is_set()

    def is_current(self) -> bool:
        """Whether this is called on it."""
        return self.ident == threading.get_ident()

    def join(self) -> None:
        """Return when it is gone."""
        while not self._done.wait(_LOOK_EVERY_S):
            if not self.is_alive():
                return
        if self._handle is not None:
            self._handle.join()
        elif self._lock is not None and self._lock.acquire(timeout=_LOOK_EVERY_S):
            self._lock.release()


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


@contextmanager
def _no_signals() -> Iterator[None]:
    """A thread made in here takes no signals: the kernel gives one to any thread that does not block it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_THE_THREAD)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

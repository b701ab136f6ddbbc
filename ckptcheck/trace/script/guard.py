"""The guard between the recorder and the script: nothing of ours ever raises into a training run.

Whatever goes wrong in a hook, or beside the training, ends the recording: it is said once on stderr, and from then on
nothing is told any more. What belongs to the script passes through: KeyboardInterrupt, SystemExit, what the script's
own signal handlers raise while a hook happens to run, and what another thread of the script sets to be raised.
"""

import opcode
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final

from ckptcheck.trace.script.plainly import plainly
from ckptcheck.trace.script.said import said

_HOME: Final = str(Path(__file__).resolve().parents[2])
"""Where our files are."""
_RAISING: Final = frozenset(opcode.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in opcode.opmap)
_SAY_NOTHING: Final = (StopIteration, StopAsyncIteration, MemoryError)
"""What python itself raises without a word."""
_OURS: Final = frozenset({"builtins", "torch", "numpy", __name__.partition(".")[0]}) | sys.stdlib_module_names
"""Whose exceptions our code may raise."""


def _nothing() -> None: ...


def _no_step(_: str) -> int:
    return 0


class Guard:
    """Runs what the hooks tell. Where nothing is watched, as in a test of one part, errors are raised as they come."""

    def __init__(self) -> None:
        self._broken: Callable[[str], int] | None = None
        self._leave: Callable[[], None] = _nothing
        self._process = os.getpid()
        self._off = False
        self._lock = threading.RLock()

    def watch(self, broken: Callable[[str], int], leave: Callable[[], None]) -> None:
        """From here on, errors end in `broken`, which gets the reason and returns the step that was in progress.

        `leave` takes all hooks away; it is called where that is safe.
        """
        self._broken, self._leave, self._off = broken, leave, False
        self._process, self._lock = os.getpid(), threading.RLock()

    def forget(self) -> None:
        """Keep nothing of what is watched, and tell nothing any more in this process or in what it forks."""
        self._off = True
        if self._broken is not None:
            self._broken, self._leave = _no_step, _nothing

    def release(self) -> None:
        """Watch nothing, so that errors are raised again."""
        self._broken, self._leave, self._off = None, _nothing, False

    def switch_off(self) -> None:
        """Tell nothing any more."""
        self._off = True

    @property
    def off_in_parent(self) -> bool:
        """Whether it was switched off in this process, or in the one that forked it before it did."""
        return self._off

    @property
    def off(self) -> bool:
        """Whether nothing is told in this process: the recording is over, or belongs to the process that forked it."""
        return self._off or os.getpid() != self._process

    def run(self, tell: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Call `tell`, one thread at a time, unless the recording is over."""
        if self._broken is None:
            plainly(tell, *args, **kwargs)
        elif not self.off:
            try:
                with self._lock:
                    plainly(tell, *args, **kwargs)
            except Exception as error:
                if belongs_to_script(error):
                    raise
                self._break_off(error)

    def try_run(self, tell: Callable[..., Any]) -> None:
        """As `run`, from a place that must not wait: nothing where another thread is being told something."""
        if self._broken is None:
            plainly(tell)
        elif self._lock.acquire(blocking=False):
            try:
                self.run(tell)
            finally:
                self._lock.release()

    def tell(self, tell: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """As `run`, from a place at which hooks may be taken away: where the recording is over, they are.

        That may not be done while torch goes through the hooks of an optimizer.
        """
        self.run(tell, *args, **kwargs)
        if self._broken is not None and self.off:
            with suppress(Exception):
                self._leave()

    def _break_off(self, error: Exception) -> None:
        if self._off or self._broken is None:
            return
        self._off = True
        reason = said(error)
        step: int | str = "?"
        with suppress(Exception):
            step = self._broken(reason)
        with suppress(Exception):
            sys.stderr.write(f"ckptcheck: recording stopped at step {step} ({reason}); the training goes on\n")
            sys.stderr.flush()


GUARD: Final = Guard()
"""The one of this process."""


def belongs_to_script(error: BaseException) -> bool:
    """Whether an exception is the script's own, which python has raised in the middle of ours."""
    return not isinstance(error, Exception) or _is_of_a_signal_handler(error) or _is_asynchronous(error)


def _is_asynchronous(error: BaseException) -> bool:
    """Whether another thread has set it (PyThreadState_SetAsyncExc): nothing in the innermost frame raises it.

    It comes as a class without a word to say, where an error of a function written in C has words; or it is of a class
    that none of our code knows.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or _raises(trace):
        return False
    if not error.args:
        return not isinstance(error, _SAY_NOTHING)
    is_known = type(error).__module__.partition(".")[0] in _OURS
    return not is_known and trace.tb_frame.f_code.co_filename.startswith(_HOME)


def _raises(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] in _RAISING


def _is_of_a_signal_handler(error: BaseException) -> bool:
    """Whether an exception came out of a signal handler that python ran in the middle of ours."""
    handlers = {code for number in signal.valid_signals() if (code := _code(signal.getsignal(number))) is not None}
    trace = error.__traceback__
    while trace is not None and handlers:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    handler = getattr(handler, "func", handler)  # of a partial
    if not callable(handler):
        return None
    for function in (handler, getattr(handler, "__func__", None), vars(type(handler)).get("__call__")):
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None

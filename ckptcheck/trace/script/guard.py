"""The guard between the recorder and the script: nothing of ours ever raises into a training run.

Whatever goes wrong in a hook, or beside the training, ends the recording: it is said once on stderr, and from then on
nothing is told any more. What belongs to the script passes through: KeyboardInterrupt, SystemExit, and what the
script's own signal handlers raise while a hook happens to run.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any, Final


def _nothing() -> None: ...


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
            tell(*args, **kwargs)
        elif not self.off:
            try:
                with self._lock:
                    tell(*args, **kwargs)
            except Exception as error:
                if _is_of_a_signal_handler(error):
                    raise
                self._break_off(error)

    def try_run(self, tell: Callable[..., Any]) -> None:
        """As `run`, from a place that must not wait: nothing where another thread is being told something."""
        if self._broken is None:
            tell()
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
        reason = " ".join(f"{type(error).__name__}: {_text(error)}".split())
        step: int | str = "?"
        with suppress(Exception):
            step = self._broken(reason)
        with suppress(Exception):
            sys.stderr.write(f"ckptcheck: recording stopped at step {step} ({reason}); the training goes on\n")
            sys.stderr.flush()


GUARD: Final = Guard()
"""The one of this process."""


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  an exception of the script's that cannot say what it is
        return "it cannot say what"


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

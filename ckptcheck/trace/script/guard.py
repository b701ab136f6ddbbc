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

import torch
from torch import nn


class Guard:
    """Runs what the hooks tell. Where nothing is watched, as in a test of one part, errors are raised as they come."""

    def __init__(self) -> None:
        self._broken: Callable[[str], int] | None = None
        self._process = os.getpid()
        self._off = False
        self._lock = threading.RLock()

    def watch(self, broken: Callable[[str], int]) -> None:
        """From here on, errors end in `broken`, which gets the reason and returns the step that was in progress."""
        self._broken, self._off, self._process, self._lock = broken, False, os.getpid(), threading.RLock()

    def release(self) -> None:
        """Watch nothing, so that errors are raised again."""
        self._broken, self._off = None, False

    def switch_off(self) -> None:
        """Tell nothing any more."""
        self._off = True

    @property
    def off(self) -> bool:
        """Whether nothing is told in this process: the recording is over, or belongs to the process that forked it."""
        return self._off or os.getpid() != self._process

    def run(self, tell: Callable[..., None], *args: Any) -> None:
        """Call `tell`, one thread at a time, unless the recording is over."""
        if self._broken is None:
            tell(*args)
        elif not self.off:
            try:
                with self._lock:
                    tell(*args)
            except Exception as error:
                if _is_of_a_signal_handler(error):
                    raise
                self._break_off(error)

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


class Guarded:
    """A listener whose every method is guarded. When the recording is over, `undo` is called where that is safe.

    Hooks cannot be taken away while torch goes through those of an optimizer, so this is done at the next forward
    pass, `backward` or clearing of gradients.
    """

    def __init__(self, listener: Any, undo: Callable[[], None], guard: Guard = GUARD) -> None:
        self._listener = listener
        self._undo: Callable[[], None] | None = undo
        self._guard = guard

    def forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """As of the listener."""
        self._guard.run(self._listener.forward, module, args, kwargs)
        self._leave()

    def backward(self, loss: torch.Tensor) -> None:
        """As of the listener."""
        self._guard.run(self._listener.backward, loss)
        self._leave()

    def before_clearing(self) -> None:
        """As of the listener."""
        self._guard.run(self._listener.before_clearing)
        self._leave()

    def before_update(self, optimizer: Any) -> None:
        """As of the listener."""
        self._guard.run(self._listener.before_update, optimizer)

    def after_update(self, optimizer: Any) -> None:
        """As of the listener."""
        self._guard.run(self._listener.after_update, optimizer)

    def _leave(self) -> None:
        if self._undo is not None and self._guard.off:
            undo, self._undo = self._undo, None
            with suppress(Exception):
                undo()


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:
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
    code = getattr(handler, "__code__", None) or getattr(getattr(handler, "__func__", None), "__code__", None)
    return code or getattr(getattr(type(handler), "__call__", None), "__code__", None)

"""Tracebacks as they are without us: the interpreter prints what a script raises, and our wrappers stand in between."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

_HOME: Final = str(Path(__file__).resolve().parents[2])
"""Where our files are."""


def listen() -> Callable[[], None]:
    """Leave our frames out where the interpreter prints an exception that nobody caught; returns what undoes it.

    A hook that is not the interpreter's own stays as it is.
    """
    undo = []
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print
        undo.append(_undo_print)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _print_of_thread
        undo.append(_undo_print_of_thread)

    def stop() -> None:
        for one in undo:
            one()

    return stop


def _print(kind: type[BaseException], error: BaseException, _: TracebackType | None) -> None:
    strip(error)
    sys.__excepthook__(kind, error, error.__traceback__)


def _undo_print() -> None:
    if sys.excepthook is _print:
        sys.excepthook = sys.__excepthook__


def _print_of_thread(told: Any) -> None:
    if told.exc_value is not None:
        strip(told.exc_value)
        told = threading.ExceptHookArgs((told.exc_type, told.exc_value, told.exc_value.__traceback__, told.thread))
    threading.__excepthook__(told)


def _undo_print_of_thread() -> None:
    if threading.excepthook is _print_of_thread:
        threading.excepthook = threading.__excepthook__


def strip(error: BaseException) -> None:
    """Take our frames out of the traceback of an exception, and of those that it came of or holds."""
    with suppress(Exception):  # of a class that does with its attributes what it likes; it is printed in any case
        for one in _all(error):
            one.__traceback__ = _without_ours(one.__traceback__)


def _all(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += [one.__cause__, one.__context__]
            pending += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    before = trace
    while before is not None:
        following = before.tb_next
        while following is not None and _is_ours(following):
            following = following.tb_next
        if following is not before.tb_next:
            before.tb_next = following
        before = following
    return trace


def _is_ours(trace: TracebackType) -> bool:
    return trace.tb_frame.f_code.co_filename.startswith(_HOME)

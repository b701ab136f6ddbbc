"""Processes that a run left behind with another environment, in sessions of their own: Linux hands them to us."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36
"""Of linux/prctl.h: what loses its parent becomes a child of ours."""


@contextmanager
def orphans_ended() -> Iterator[None]:
    """Be the parent of what runs leave behind, and kill it at the end: for a process that has no other children.

    Does nothing where the system has no such thing.
    """
    adopts = _adopt()
    try:
        yield
    finally:
        if adopts:
            _end_all()


def _adopt() -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _end_all() -> None:
    """Kill our children until there is none: those of the killed ones come to us in turn."""
    while alive := _children():
        for one in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one, signal.SIGKILL)
        for one in alive:
            with suppress(ChildProcessError):
                os.waitpid(one, 0)


def _children() -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.parent.name))
    return found

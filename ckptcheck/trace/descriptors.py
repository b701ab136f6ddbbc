"""The descriptors that SQLite keeps open: whether they are still its own.

A script may close every descriptor there is, as daemons do, and open files of its own under their numbers.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_FOLDERS: Final = (Path("/proc/self/fd"), Path("/dev/fd"))


class Descriptors:
    """The open descriptors of a few files. `lost` is for who finds that they are not open any more."""

    def __init__(self, *paths: Path) -> None:
        self.lost = False
        wanted = {_identity(path.stat()) for path in paths if path.exists()}
        self._known = {number: one for number, one in _open() if one in wanted}

    def are_ours(self) -> bool:
        """Whether each is open, and open on the same file as at first."""
        try:
            return not self.lost and all(_identity(os.fstat(number)) == one for number, one in self._known.items())
        except OSError:
            return False


def keep_for_ever(one: Any) -> None:
    """Have an object never freed, not even when the interpreter is taken down, so that it closes nothing."""
    import ctypes  # some builds of python have none; and it is needed only here

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def _open() -> Iterator[tuple[int, tuple[int, int]]]:
    folder = next((one for one in _FOLDERS if one.is_dir()), None)
    for number in [int(one.name) for one in folder.iterdir()] if folder is not None else ():
        with suppress(OSError):  # the one that lists them is closed already
            yield number, _identity(os.fstat(number))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino

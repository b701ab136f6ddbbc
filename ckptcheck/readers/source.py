"""Bytes of files by position: windows that threads share, few open files, and a watch for files that change."""

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError

MAX_OPEN: Final = 64
"""Files that a pool keeps open at once."""
MAX_SHOWN: Final = 200
"""Characters of a name from a file that a message shows."""
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_Seen = tuple[int, int, int, int]


class FilePool:
    """The files of one checkpoint, opened when they are read and closed when others are."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, tuple[int, int]] = OrderedDict()
        self._seen: dict[Path, _Seen] = {}
        self._lock = threading.Lock()

    def open(self, path: Path, label: str = "") -> "Source":
        """The whole of a regular file; links are followed, pipes and devices refused.

        `label` is what to call it beside the checkpoint's own path. Raises CheckpointError where it cannot be opened.
        """
        descriptor = self._acquire(path)
        try:
            return Source(self, path, label, 0, os.fstat(descriptor).st_size)
        finally:
            self._release(path)

    def read_into(self, path: Path, position: int, buffer: memoryview) -> int:
        """Fill as much of `buffer` as the file holds from `position` on; returns the count of bytes."""
        descriptor = self._acquire(path)
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(descriptor, [buffer[done:]], position + done)
                if not count:
                    break
                done += count
        except OSError as trouble:
            raise CheckpointError(f"{path}: cannot be read ({trouble.strerror})") from trouble
        finally:
            self._release(path)
        return done

    def check_unchanged(self) -> None:
        """DamagedCheckpointError where a file that was read is not the same any more."""
        for path, seen in self._seen.items():
            try:
                now = _seen(path.stat())
            except OSError:
                now = None
            if now != seen:
                raise _changed(path)

    def close(self) -> None:
        """Close all files; a later read opens them again."""
        with self._lock:
            for descriptor, _ in self._open.values():
                os.close(descriptor)
            self._open.clear()

    def __del__(self) -> None:
        self.close()

    def _acquire(self, path: Path) -> int:
        with self._lock:
            held = self._open.get(path)
            descriptor, users = held if held else (self._opened(path), 0)
            self._open[path] = (descriptor, users + 1)
            self._open.move_to_end(path)
            return descriptor

    def _release(self, path: Path) -> None:
        with self._lock:
            descriptor, users = self._open[path]
            self._open[path] = (descriptor, users - 1)
            if len(self._open) > MAX_OPEN:
                idle = next((one for one, (_, count) in self._open.items() if not count), None)
                if idle is not None:
                    os.close(self._open.pop(idle)[0])

    def _opened(self, path: Path) -> int:
        try:
            descriptor = os.open(path, _FLAGS)
        except OSError as trouble:
            raise CheckpointError(f"{path}: cannot be opened ({trouble.strerror})") from trouble
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise CheckpointError(f"{path}: is no regular file: give the path of a checkpoint file or folder")
        if self._seen.setdefault(path, _seen(status)) != _seen(status):
            os.close(descriptor)
            raise _changed(path)
        return descriptor


def _changed(path: Path) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path}: changed while it was read: wait until it is written, or read a copy")


def _seen(status: os.stat_result) -> _Seen:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A window of `nbytes` bytes that begins at byte `begin` of a file.

    `label` is the file's path relative to the checkpoint, "" where the checkpoint is this file.
    """

    pool: FilePool
    path: Path
    label: str
    begin: int
    nbytes: int

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on. DamagedCheckpointError where the window holds fewer bytes."""
        if start < 0 or start + len(buffer) > self.nbytes:
            raise self._too_short(start, len(buffer))
        count = self.pool.read_into(self.path, self.begin + start, buffer)
        if count < len(buffer):
            raise DamagedCheckpointError(f"{self}: ends {len(buffer) - count} bytes early: it was cut short meanwhile")

    def read(self, start: int, length: int) -> bytes:
        """`length` bytes from byte `start` on; errors as `read_into`."""
        if start < 0 or length < 0 or start + length > self.nbytes:
            raise self._too_short(start, length)
        content = bytearray(length)
        self.read_into(start, memoryview(content))
        return bytes(content)

    def head(self, length: int) -> bytes:
        """The first bytes, fewer where there are fewer."""
        return self.read(0, min(length, self.nbytes))

    def home(self) -> tuple[Hashable, int]:
        """What positions count in, and this window's first one: see `Stretch`."""
        return (self.pool, self.path), self.begin

    def window(self, begin: int, nbytes: int) -> "Source":
        """A part of this window. DamagedCheckpointError where it reaches beyond."""
        if begin < 0 or nbytes < 0 or begin + nbytes > self.nbytes:
            raise self._too_short(begin, nbytes)
        return Source(self.pool, self.path, self.label, self.begin + begin, nbytes)

    def _too_short(self, start: int, length: int) -> DamagedCheckpointError:
        return DamagedCheckpointError(
            f"{self}: bytes {start} to {start + length} were promised, {self.nbytes} are there: cut short"
        )

    def __str__(self) -> str:
        return str(self.path)


def quoted(name: str) -> str:
    """A name from a file, of any length and any characters, as a message shows it."""
    return repr(name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}...")


def said_of(trouble: CheckpointError, path: Path) -> str:
    """What an error says without the path that it begins with, for whoever names the place himself.

    `path` is the file's that it came from; a folder or an archive around it may stand in its place.
    """
    said = str(trouble)
    return next((said.removeprefix(f"{one}: ") for one in (path, *path.parents) if said.startswith(f"{one}: ")), said)


def inside(folder: Path, name: str) -> Path:
    """The file `name` in `folder`; CheckpointError where the name, or a link, leads out of it.

    Names come from files: "../x", "/x" and links to elsewhere must not be followed. Links of Hugging Face's cache, from
    `snapshots/<revision>` to the `blobs` beside it, are part of the folder.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or "\\" in name:
        raise CheckpointError(f"{folder}: names the file {quoted(name)}, which is not inside the folder: not followed")
    path = folder.joinpath(*parts)
    try:
        target, home = path.resolve(), folder.resolve()
        leaves = not target.is_relative_to(home) and not _is_blob(target, home)
    except (OSError, RuntimeError) as trouble:
        raise CheckpointError(f"{path}: cannot be resolved ({trouble}): not followed") from trouble
    if leaves:
        raise CheckpointError(f"{path}: is a link that leads out of the folder: not followed")
    return path


def _is_blob(target: Path, folder: Path) -> bool:
    """Whether a link leads from a snapshot of Hugging Face's cache to the cache's own blobs."""
    snapshots = next((one for one in folder.parents if one.name == "snapshots"), None)
    return snapshots is not None and target.parent == snapshots.parent / "blobs"

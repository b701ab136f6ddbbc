"""Durable writing and safe reading of the files in one folder."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from ckptcheck.errors import StoreError

Chunk: TypeAlias = bytes | bytearray | memoryview

_GATHER_BYTES: Final = 1 << 20
"""Small chunks are gathered to this size: a model of many small tensors costs few calls."""
_WRITE_BYTES: Final = 1 << 26
"""One call writes at most this much; Linux itself stops at 2 GiB."""
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NOT_LOCKABLE: Final = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF)


def open_inside(folder: Path, name: str) -> int:
    """A descriptor of a regular file that lies in the folder itself: links and devices are refused.

    Raises FileNotFoundError or NotADirectoryError when it is missing, StoreError when it is no regular file.
    """
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as trouble:
        raise StoreError(f"{path}: cannot be opened as a plain file ({trouble.strerror})") from trouble
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path}: a plain file was promised, and this is none: the store was tampered with")
    return descriptor


def read_inside(folder: Path, name: str, limit_bytes: int) -> bytes:
    """The content of a file in the folder, at most `limit_bytes` long, else StoreError."""
    with open(open_inside(folder, name), "rb") as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise StoreError(f"{folder / name}: larger than the {limit_bytes} bytes that such a file may have")
    return content


def write_new(path: Path, chunks: Iterable[Chunk]) -> int:
    """Write a file that must not exist yet, wait until the disk has it, and return its size in bytes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o666)
    try:
        size_bytes = sum(_write(descriptor, chunk) for chunk in _gathered(chunks))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size_bytes


def _gathered(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    small = bytearray()
    for chunk in chunks:
        if len(chunk) < _GATHER_BYTES:
            small += chunk
        if small and (len(small) >= _GATHER_BYTES or len(chunk) >= _GATHER_BYTES):
            yield small
            small = bytearray()
        if len(chunk) >= _GATHER_BYTES:
            yield chunk
    if small:
        yield small


def _write(descriptor: int, chunk: Chunk) -> int:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest[:_WRITE_BYTES]) :]
    return len(chunk)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's entries; where folders cannot be synced, nothing."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder with its parents, each entry on the disk before the next one is made."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


@contextlib.contextmanager
def locked(folder: Path, *, exclusive: bool) -> Iterator[None]:
    """Hold the folder for a save (exclusive, not waiting) or a load (shared, waiting for a save to end).

    Raises StoreError when a save finds it held. A dead process holds nothing. Where the file system has no
    locks, nothing is held.
    """
    if os.name != "posix":
        yield
        return
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as trouble:
        raise StoreError(f"{folder}: cannot be opened ({trouble.strerror})") from trouble
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError:
            raise StoreError(
                f"{folder}: another process or thread is using this store: give each rank a folder of its own"
            ) from None
        except OSError as trouble:
            if trouble.errno not in _NOT_LOCKABLE:
                raise
        yield
    finally:
        # A child forked meanwhile shares the lock: closing alone would leave it held.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

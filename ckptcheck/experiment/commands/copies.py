"""Copies of folders: of a run's output as it stands, and of the working folder that a run may write into."""

import errno
import fcntl
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from ckptcheck.errors import OutputError, UsageError

MAX_COPIED_BYTES: Final = 2 << 30
"""Larger working folders are not copied for each run."""
LEFT_OUT: Final = frozenset({".git", ".hg", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
LINKED_MARKS: Final = ("pyvenv.cfg", "conda-meta")
"""A folder that holds one of these is an environment: runs link to it rather than copy it."""
_CLONE: Final = 0x40049409
"""FICLONE of linux/fs.h: share the blocks of a file until one side writes."""


class LeftBehindWarning(UserWarning):
    """A folder of ours stays."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a working folder's copy is made of: relative paths, and the bytes of the files that are copied."""

    folders: list[str] = field(default_factory=list)
    files: list[tuple[str, int]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    shared: list[str] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes to copy."""
        return sum(size for _, size in self.files)


def content_of(folder: Path, shared: tuple[str, ...]) -> Content:
    """What to copy of a working folder and what to link to, by globs over names or relative paths.

    UsageError where a glob matches nothing, or more than `MAX_COPIED_BYTES` would be copied.
    """
    content = Content()
    unused = set(shared)
    pending = [""]
    while pending:
        for entry in _entries(folder, pending.pop()):
            name = os.path.relpath(entry.path, folder)
            globs = [one for one in shared if fnmatch(name, one.rstrip("/")) or fnmatch(entry.name, one.rstrip("/"))]
            unused.difference_update(globs)
            if globs:
                content.shared.append(name)
            elif entry.is_symlink():
                content.links.append(name)
            elif entry.is_dir():
                _sort_folder(content, pending, name, entry)
            elif entry.is_file():
                content.files.append((name, entry.stat().st_size))
    if unused:
        raise UsageError(f"--share {min(unused)!r} matches nothing in {folder}")
    _check_size(folder, content)
    return content


def _entries(folder: Path, below: str) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder / below) as entries:
            yield from list(entries)
    except OSError as error:
        raise UsageError(
            f"{folder / below} cannot be read ({error.strerror}), so {folder} cannot be copied for each run: "
            f"name its output folder as {{dir}} in --run"
        ) from error


def _sort_folder(content: Content, pending: list[str], name: str, entry: "os.DirEntry[str]") -> None:
    if entry.name in LEFT_OUT:
        return
    if any((Path(entry.path) / mark).exists() for mark in LINKED_MARKS):
        content.shared.append(name)
        return
    content.folders.append(name)
    pending.append(name)


def _check_size(folder: Path, content: Content) -> None:
    if content.nbytes <= MAX_COPIED_BYTES:
        return
    sizes: dict[str, int] = {}
    for name, size in content.files:
        top = name.partition(os.sep)[0]
        sizes[top] = sizes.get(top, 0) + size
    largest = max(sizes, key=lambda one: sizes[one])
    raise UsageError(
        f"{folder} holds {content.nbytes / 2**30:.1f} GiB, too much to copy for each run ({largest}: "
        f"{sizes[largest] / 2**30:.1f} GiB): name the output folder as {{dir}} in --run, or --share {largest}"
    )


def copy_working_folder(folder: Path, target: Path, content: Content) -> None:
    """Make a run's own working folder at `target`, which must not exist. OutputError where it cannot be written."""
    with _told(target):
        target.mkdir(parents=True)
        for name in content.folders:
            (target / name).mkdir(parents=True, exist_ok=True)
        for name, _ in content.files:
            _copy_file(folder / name, target / name)
        for name in content.shared:
            (target / name).symlink_to(folder / name)
        for name in content.links:
            _copy_link(folder, target, name)


def _copy_link(folder: Path, target: Path, name: str) -> None:
    """A link keeps leading to what it led to: inside to the copy's own, outside to the same place."""
    leads = (folder / name).readlink()
    place = Path(os.path.normpath((folder / name).parent / leads))
    inside = place == folder or folder in place.parents
    if inside and leads.is_absolute():
        leads = target / place.relative_to(folder)
    elif not inside:
        leads = place
    (target / name).symlink_to(leads)


def snapshot(folder: Path, target: Path) -> None:
    """Copy a folder as it stands, links as links; what goes away meanwhile is left out. OutputError as above."""
    with _told(target):
        target.mkdir(parents=True)
        for place, folders, files in os.walk(folder):
            here = target / Path(place).relative_to(folder)
            for name in folders:
                if not Path(place, name).is_symlink():
                    (here / name).mkdir()
            for name in (*folders, *files):
                with suppress(FileNotFoundError):
                    _copy_any(Path(place, name), here / name)


def _copy_any(source: Path, target: Path) -> None:
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_file():  # a socket or a pipe is no part of a checkpoint
        _copy_file(source, target)


def _copy_file(source: Path, target: Path) -> None:
    """Share the file's blocks where the file system can, else copy them; times and permissions come along."""
    with source.open("rb") as read, target.open("wb") as written:
        try:
            fcntl.ioctl(written, _CLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, written, 1 << 20)
    shutil.copystat(source, target)


@contextmanager
def _told(target: Path) -> Iterator[None]:
    """Tell of a copy that cannot be made."""
    try:
        yield
    except OSError as error:
        room = "set TMPDIR to a place with room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "look there"
        raise OutputError(f"the copy {target} cannot be made ({error}): {room}") from error


def remove(folder: Path) -> None:
    """Remove a folder of ours, and what a run has made unwritable in it; `LeftBehindWarning` where it stays."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        for place, folders, _ in os.walk(folder):
            for one in folders:
                with suppress(OSError):  # before it is gone into
                    Path(place, one).chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        warnings.warn(f"the temporary folder {folder} cannot be removed whole", LeftBehindWarning, stacklevel=2)


@contextmanager
def told_of_folder(folder: Path) -> Iterator[None]:
    """Tell with OutputError of a temporary folder that is not as we made it; errors elsewhere pass through."""
    try:
        yield
    except OSError as error:
        if not str(error.filename or "").startswith(str(folder)):
            raise
        hint = "set TMPDIR to a place with room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else (
            "no run may remove the temporary folder that it is made in"
        )  # fmt: skip
        raise OutputError(f"{error.filename} cannot be used ({error.strerror}): {hint}") from error

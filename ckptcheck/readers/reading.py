"""From a path to a raw tree: every file and folder is claimed by its content and read as far as its description."""

import errno
import os
from pathlib import Path
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.pickle.rank_pieces import with_pieces
from ckptcheck.readers.reader import HEAD_BYTES, Head, Listing
from ckptcheck.readers.source import FilePool, Source
from ckptcheck.state.raw import Defect, Flaw, RawTree

MAX_FILES: Final = 100_000
MAX_FOLDER_DEPTH: Final = 8


def read_raw(path: Path | str, *, strict: bool = True) -> RawTree:
    """Describe the checkpoint at `path`, a file or a folder.

    With `strict`, damage anywhere raises; else what is damaged in a folder becomes a defect and the rest is read.
    Raises DamagedCheckpointError, or CheckpointError where `path` is absent or no checkpoint that we read.
    """
    return Reading(Path(path), strict=strict).all()


class Reading:
    """One checkpoint being read. `pool` holds its files, `path` is what the user gave."""

    def __init__(self, path: Path, *, strict: bool) -> None:
        self.path = path
        self.strict = strict
        self.pool = FilePool()
        self.defects: list[Defect] = []

    def all(self) -> RawTree:
        """The whole checkpoint."""
        from ckptcheck.readers.table import FOLDER_READERS

        try:
            is_folder = self.path.is_dir()
            self.path.stat()
        except OSError as trouble:
            raise CheckpointError(f"{self.path}: {_said(trouble)}") from trouble
        if not is_folder:
            return self.file(self.path, "")
        listing = list_folder(self.path)
        for reader in FOLDER_READERS:
            if reader.claims(listing):
                return reader.read(listing, self)
        raise CheckpointError(f"{self.path}: no checkpoint is in this folder: name the checkpoint's own file or folder")

    def file(self, path: Path, label: str) -> RawTree:
        """One file, claimed by its content; `label` is its path relative to the checkpoint, "" for the whole."""
        return self.content(self.pool.open(path, label))

    def content(self, source: Source) -> RawTree:
        """What lies in a window of a file, claimed by its content."""
        from ckptcheck.readers.refused import refusal_of
        from ckptcheck.readers.table import FILE_READERS

        head = Head(source, source.head(HEAD_BYTES))
        for reader in FILE_READERS:
            if reader.claims(head):
                return with_pieces(reader.read(source, self))
        raise refusal_of(head)

    def damaged(self, flaw: Flaw, file: str, said: str) -> None:
        """Take note of damage that need not stop the reading; raises where the reading is strict."""
        if self.strict:
            raise DamagedCheckpointError(f"{self.path / file if file else self.path}: {said}", flaw)
        self.defects.append(Defect(flaw, file, said))


def list_folder(path: Path) -> Listing:
    """The files below a folder, links to files included, and its sub-folders; links to folders are not followed.

    CheckpointError for a folder that cannot be read, or holds more than `MAX_FILES` files.
    """
    files: dict[str, Path] = {}
    trouble: list[OSError] = []
    for folder, folders, names in os.walk(path, onerror=trouble.append):
        here = Path(folder)
        if len(here.relative_to(path).parts) >= MAX_FOLDER_DEPTH:
            folders.clear()
        folders.sort()
        for name in sorted(names):
            files[(here / name).relative_to(path).as_posix()] = here / name
        if len(files) > MAX_FILES:
            raise CheckpointError(f"{path}: holds more than {MAX_FILES} files: name the checkpoint's own folder")
    if trouble:
        raise CheckpointError(f"{trouble[0].filename}: {_said(trouble[0])}")
    return Listing(path, files, {one.name: one for one in sorted(path.iterdir()) if one.is_dir()})


def _said(trouble: OSError) -> str:
    if trouble.errno == errno.ENOENT:
        return "there is no such file or folder"
    return f"cannot be read ({trouble.strerror or trouble})"

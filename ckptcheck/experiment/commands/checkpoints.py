"""Which file or folder is the checkpoint of a step, told from what the step wrote into the output folder."""

import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Final

from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import CheckpointError
from ckptcheck.readers.folders import folder_files as names
from ckptcheck.readers.folders.run_folder import RunFolder
from ckptcheck.readers.json_file import JsonFile
from ckptcheck.readers.pickle.bare_pickle import BarePickle
from ckptcheck.readers.reader import HEAD_BYTES, Head
from ckptcheck.readers.reading import list_folder, read_raw
from ckptcheck.readers.source import FilePool
from ckptcheck.readers.table import FILE_READERS

_TENSOR_READERS: Final = tuple(one for one in FILE_READERS if not isinstance(one, JsonFile | BarePickle))

EVERYTHING: Final = 2
"""Weights and optimizer state: the parts of a checkpoint by which files are told from each other."""


def checkpoint_in(folder: Path, changed: Collection[str], older: Collection[str] = ()) -> Path | None:
    """The checkpoint that a step wrote; `changed` are the paths, relative to `folder`, of what it wrote.

    `older` are paths of what was there before, and may be of this step all the same where they stand in both. A folder
    is a checkpoint where nothing in it is older, and several files, its name or a description of its
    kind say that it is one; else each file is one. Of several, what holds weights and optimizer state goes before what
    holds one of them, and that before generators and data; then the one with the most bytes is taken, of equals the
    outermost, then the newest. None where nothing that was written holds tensors.
    """
    ranked = checkpoints_in(folder, changed, older)
    return ranked[0] if ranked else None


def checkpoints_in(folder: Path, changed: Collection[str], older: Collection[str] = ()) -> tuple[Path, ...]:
    """Everything of what a step wrote that is a checkpoint, the one that `checkpoint_in` takes first."""
    written = [PurePosixPath(one) for one in changed if holds_tensors(folder / one)]
    left_over = frozenset(map(PurePosixPath, older)).difference(written)
    found = {_whole(folder, one, left_over) for one in written}
    parts = {one: _parts_held(folder / one) if len(found) > 1 else 0 for one in found}
    sizes = {one: nbytes_of(folder / one) for one in found}
    ranked = sorted(
        found, key=lambda one: (-parts[one], -sizes[one], len(one.parts), -_written_s(folder / one), str(one))
    )
    return tuple(folder / one for one in ranked)


def holds_tensors(path: Path) -> bool:
    """Whether a file is one that our readers claim, and more than text."""
    named = names.is_weights(path.name)
    stored = path.name.endswith(names.DCP_SUFFIX) or path.name == names.DCP_METADATA
    if path.is_symlink() or not path.is_file() or (path.suffix in names.OTHER_SUFFIXES and not stored):
        return False
    pool = FilePool()
    try:
        source = pool.open(path)
        head = Head(source, source.head(HEAD_BYTES))
        if any(one.claims(head) for one in _TENSOR_READERS):
            return True
        return (named or stored) and BarePickle().claims(head)
    except CheckpointError:
        return False  # it went away meanwhile, or cannot be read: nothing that a resume could use
    finally:
        pool.close()


def _parts_held(path: Path) -> int:
    """How many of weights and optimizer state something holds; a folder that is one checkpoint holds all there is."""
    if path.is_dir():
        return EVERYTHING
    try:
        state = explain(read_raw(path)).state
    except CheckpointError:
        return 0
    return bool(state.parameters) + any(one.state for one in state.optimizers)


def _whole(folder: Path, file: PurePosixPath, older: frozenset[PurePosixPath]) -> PurePosixPath:
    """The outermost folder around a file that is one checkpoint; the file itself where there is none."""
    for around in reversed(file.parents):  # the output folder itself first
        if _is_checkpoint(folder, around, older):
            return around
    return file


def _is_checkpoint(folder: Path, around: PurePosixPath, older: frozenset[PurePosixPath]) -> bool:
    place = folder / around
    if any(around in one.parents and holds_tensors(folder / one) for one in older):
        return False  # it holds something of an earlier step
    try:
        listing = list_folder(place)
    except CheckpointError:
        return False  # more files than any checkpoint has, or none that we may read
    top = names.at_top(listing)
    if names.RECIPE_STATE in listing.files or names.marked_folders([f"here/{one}" for one in top]):
        return True
    if RunFolder().claims(listing):
        return False
    if around.parts and names.NUMBERED.fullmatch(around.name):
        return len(listing.files) > 1
    held = [_parts_held(place / one) for one in top if names.is_weights(one)]
    # A file that holds all there is stands for itself beside one with generators or data.
    return len(held) > 1 and (EVERYTHING not in held or min(held) == EVERYTHING)


def nbytes_of(path: Path) -> int:
    """The bytes of a file, or of all files below a folder."""
    files = [path] if path.is_file() else [Path(here, name) for here, _, files in os.walk(path) for name in files]
    return sum(one.st_size for file in files if (one := _status(file)) is not None)


def _written_s(path: Path) -> float:
    status = _status(path)
    return status.st_mtime if status is not None else 0.0


def _status(path: Path) -> os.stat_result | None:
    """None where it has gone, and for a link that leads nowhere."""
    try:
        return path.stat()
    except OSError:
        return None

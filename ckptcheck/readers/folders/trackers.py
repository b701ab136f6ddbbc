"""Small text files that name the checkpoint to resume from. A name in one never leads out of its folder."""

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.reader import Listing
from ckptcheck.readers.source import FilePool, inside, quoted
from ckptcheck.state.raw import Flaw

MAX_TRACKER_BYTES: Final = 4096
MEGATRON: Final = "latest_checkpointed_iteration.txt"
TRACKERS: Final = (MEGATRON, "latest", "latest_universal", "last_checkpoint")
"""Megatron's, DeepSpeed's (two), and that of fvcore and mmengine; the first that is there counts."""
LATEST: Final = ("checkpoint_last.pt", "last.pth.tar", "epoch_latest.pt", "last.pt", "last.ckpt")
"""Files that are the newest checkpoint by their names: of fairseq, timm, open_clip, ultralytics and Lightning."""

_ITERATION: Final = re.compile(r"\d{1,12}")


@dataclass(frozen=True, slots=True)
class Tracked:
    """What a tracker names: `name` relative to the folder, at `path`."""

    tracker: str
    name: str
    path: Path


def tracked(listing: Listing) -> Tracked | None:
    """What the folder's tracker names, None without one.

    Raises DamagedCheckpointError where it points nowhere, CheckpointError where it leads out of the folder.
    """
    tracker = next((one for one in TRACKERS if one in listing.files), None)
    if tracker is None:
        return None
    written = _text(inside(listing.path, tracker))
    name = _name(tracker, written)
    if not name:
        raise DamagedCheckpointError(
            f"{listing.path / tracker}: names no checkpoint ({quoted(written)})", Flaw.INCOMPLETE
        )
    path = inside(listing.path, name)
    if not os.path.exists(path):  # noqa: PTH110 - unlike Path.exists, never raises for a name that is too long
        raise DamagedCheckpointError(
            f"{listing.path / tracker}: names {quoted(name)}, which is not there: "
            "the save was cut short, or moved in part",
            Flaw.INCOMPLETE,
        )
    if path.resolve() == listing.path.resolve():
        raise CheckpointError(f"{path}: is a link to the folder it lies in: not followed")
    return Tracked(tracker, name, path)


def tag_of(listing: Listing) -> str | None:
    """The sub-folder that DeepSpeed's `latest` names; None without one, whatever is wrong with it."""
    if "latest" not in listing.files:
        return None
    try:
        name = _name("latest", _text(inside(listing.path, "latest")))
    except CheckpointError:
        return None
    return name if name in listing.folders else None


def _text(path: Path) -> str:
    """What a tracker begins with."""
    source = FilePool().open(path)
    return source.head(MAX_TRACKER_BYTES).decode("utf-8", "replace").strip()


def _name(tracker: str, written: str) -> str:
    """The name relative to the folder, "" where there is none."""
    if tracker == MEGATRON:
        return f"iter_{int(written):07d}" if _ITERATION.fullmatch(written) else written if written == "release" else ""
    if not written.isprintable():
        return ""
    if tracker == "last_checkpoint":  # mmengine writes the full path of where the file was
        written = PureWindowsPath(written).name if "\\" in written else PurePosixPath(written).name
    return written

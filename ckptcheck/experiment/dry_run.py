"""The worker's side of a dry-run: the target as it is built, one load of a checkpoint into it, and no step."""

import fcntl
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from ckptcheck.errors import OutputError
from ckptcheck.experiment.job import Job
from ckptcheck.experiment.run import Run

OWN: Final = "the target's own load"
STORE: Final = "ckptcheck's store"
TORCH: Final = "torch's load_state_dict"
SIDECAR: Final = "ckptcheck.json"
"""Stands beside what a target's own save wrote in a folder of `ckptcheck save`, and says at which step that was."""
SAVED: Final = "state"
"""The name that a target's own save and load get in such a folder."""
_FICLONE: Final = 0x40049409
"""The ioctl that shares a file's blocks until one of the two is written (linux/fs.h)."""


class Tells(Protocol):
    """Who hears of the worker's phases and facts."""

    def at(self, phase: str, step: int | None = None) -> None:
        """The run enters a phase."""

    def tell(self, event: dict[str, Any]) -> None:
        """Send one event."""


def try_load(job: Job, run: Run, recording: Any, teller: Tells) -> None:
    """Record the run as built, load the job's checkpoint into it, and record it again.

    The facts "how", "not_loaded", "troubles" and "left_out" say what loaded, why nothing did, what torch refused of it
    and what was not tried. What the target's own load raises passes through. OutputError where there is no room for
    the copy.
    """
    from ckptcheck.store.read import is_store

    assert job.dry_run is not None
    recording.built(0)
    teller.tell({"facts": recording.facts})
    how = STORE if is_store(job.dry_run) else OWN if run.load is not None else TORCH
    if how == OWN and not job.may_execute:
        teller.tell({"facts": {"not_loaded": "its pickles name functions that can run code, and the target's own load "
                                             "would execute them"}})  # fmt: skip
        return
    teller.tell({"facts": {"how": how}})
    teller.at("load")
    _load(how, job, run, teller)
    recording.load(0)


def _load(how: str, job: Job, run: Run, teller: Tells) -> None:
    assert job.dry_run is not None
    if how == STORE:
        from ckptcheck.store.load import load_run

        load_run(job.dry_run, run)  # reads only
    elif how == OWN:
        assert run.load is not None
        run.load(copied(job.dry_run, job.workdir / "checkpoint"))
    else:
        from ckptcheck.experiment.load_by_torch import load_state_dicts

        troubles, left_out = load_state_dicts(job.dry_run, run)
        teller.tell({"facts": {"troubles": troubles, "left_out": left_out}})


def copied(checkpoint: Path, folder: Path) -> Path:
    """A copy of a checkpoint in a new folder, under its own name, and the path that a target's load gets.

    A user's load may write into what it reads, so that a link would not do; where the file system can share blocks,
    the copy costs nothing. OutputError where it cannot be written.
    """
    name = checkpoint.resolve().name
    there = folder / name
    try:
        folder.mkdir(parents=True)
        if checkpoint.is_dir():
            shutil.copytree(checkpoint, there, symlinks=False, copy_function=_copy_file)
        else:
            _copy_file(str(checkpoint), str(there))
    except (OSError, shutil.Error) as error:
        raise OutputError(f"{checkpoint} cannot be copied for the dry-run ({error}); set TMPDIR to a folder with room") from error  # fmt: skip  # noqa: E501
    return there / SAVED if (there / SIDECAR).is_file() else there


def _copy_file(source: str, target: str) -> str:
    with open(source, "rb") as read, open(target, "wb") as write:
        with suppress(OSError):
            fcntl.ioctl(write.fileno(), _FICLONE, read.fileno())
            return target
        shutil.copyfileobj(read, write, 1 << 22)
    with suppress(OSError):
        Path(target).chmod(0o600)
    return target

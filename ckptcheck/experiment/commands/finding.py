"""After which steps a run saved, and which checkpoint there is to resume from."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ckptcheck.errors import RunFailedError
from ckptcheck.experiment.commands.checkpoints import checkpoint_in
from ckptcheck.readers.folders.folder_files import NUMBERED, is_stored_state
from ckptcheck.trace.script.rendezvous import listing


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint: its path, and the step after which it was written; None where nobody saw that step."""

    path: Path
    step: int | None


def chosen_step(folder: Path, changes: Mapping[int, tuple[str, ...]], last: int, preferred: Sequence[int] = ()) -> int:
    """The first of the preferred steps after which a checkpoint was written; without one, the step nearest to half.

    It is never the last one. `changes` are the paths below `folder` that had changed after each step. What is gone
    again, a rotated checkpoint, counts by its name. RunFailedError where there is none.
    """
    steps = [step for step, paths in changes.items() if 0 < step < last and _saved(folder, paths)]
    if not steps:
        raise RunFailedError(
            f"the reference run wrote no checkpoint before its last step ({last}): let it save halfway, "
            f"name its output folder as {{dir}} if it writes elsewhere, or give --resume-at"
        )
    nearest = min(steps, key=lambda step: (abs(step - last / 2), step))
    return next((step for step in preferred if step in steps), nearest)


def _saved(folder: Path, paths: tuple[str, ...]) -> bool:
    gone = any(is_stored_state(one) and not (folder / one).exists() for one in paths)
    return gone or checkpoint_in(folder, paths) is not None


def found_in(folder: Path, changes: Mapping[int, tuple[str, ...]], step: int, initial: Collection[str]) -> Found | None:
    """The newest checkpoint in a folder as it stood after a step; `initial` was there before the run."""
    for at in sorted((one for one in changes if one <= step), reverse=True):
        older = {*initial, *(path for one in changes if one < at for path in changes[one])} - _ahead(changes, at)
        path = checkpoint_in(folder, changes[at], older)
        if path is not None:
            return Found(path, at)
    return None


def _ahead(changes: Mapping[int, tuple[str, ...]], at: int) -> set[str]:
    """What was seen a step early of the numbered folders that a step writes: another rank may be that far ahead."""
    folders = {PurePosixPath(path).parent for path in changes[at]}
    new = {one for one in folders if NUMBERED.fullmatch(one.name)}
    return {path for path in changes.get(at - 1, ()) if PurePosixPath(path).parent in new}


def found_after(folder: Path, before: Mapping[str, tuple[int, int, int]]) -> Found | None:
    """The checkpoint that was written since the folder had the files `before`, as `listing` has them."""
    changed = [name for name, facts in listing(folder).items() if before.get(name) != facts]
    path = checkpoint_in(folder, changed, before)
    return Found(path, None) if path is not None else None

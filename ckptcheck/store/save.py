"""Save a training state: a crash at any point leaves the old state or the new one, whole."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptcheck.errors import StoreError
from ckptcheck.store import files, manifest_file
from ckptcheck.store.capture import Captured, capture
from ckptcheck.store.layout import MANIFEST, is_ours, new_temporary_name
from ckptcheck.store.live import live, live_of_run
from ckptcheck.store.manifest import Manifest


def save(
    path: str | os.PathLike[str],
    *,
    model: Any,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    ema: Any = None,
    data: Any = None,
    extra: Mapping[str, Any] | None = None,
    step: int | None = None,
) -> None:
    """Save everything that an exact resume needs into the folder `path`, in place of what was saved there before.

    `model` is a module or a dict of modules; `optimizer`, `scheduler`, `scaler`, `ema` and `data` are each one, a
    list or None; `data` and every value of `extra` have `state_dict` and `load_state_dict`. Saved besides are
    accumulated gradients, `requires_grad`, train and eval modes, and the random generators. Nothing live changes.

    Raises StoreError, with nothing written, for what cannot be carried without pickle and for a folder that holds
    something else; StoreError, with the old state left as it was, when the disk refuses.
    """
    objects = live(
        model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, ema=ema, data=data, extra=extra
    )
    _write(Path(path), capture(objects, step))


def save_run(path: str | os.PathLike[str], run: Any, step: int | None) -> None:
    """`save` with the fields of a `ckptcheck.Run`."""
    _write(Path(path), capture(live_of_run(run), step))


def _write(folder: Path, captured: Captured) -> None:
    try:
        _refuse_foreign(folder)
        files.make_folder(folder)
        with files.locked(folder, exclusive=True):
            manifest = _write_beside(folder, captured)
            # The state before this one goes, and what crashed saves have left.
            _sweep(folder, {payload.file for payload in manifest.payloads.values()})
    except OSError as trouble:
        raise StoreError(
            f"{folder}: cannot be written ({trouble.strerror or trouble}); what was saved there before is not harmed"
        ) from trouble


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StoreError(f"{folder}: a file stands there, and a training state is saved as a folder: name another path")
    if manifest_file.claims(folder):
        return
    foreign = next((one.name for one in folder.iterdir() if not is_ours(one.name)), None)
    if foreign is not None:
        raise StoreError(
            f"{folder}: holds {foreign!r} and no training state, nothing was written: name a new or an empty folder"
        )


def _write_beside(folder: Path, captured: Captured) -> Manifest:
    """Write the new state beside the old one, and swap the manifests as the last act."""
    temporary = folder / new_temporary_name()
    there = {one.name for one in folder.iterdir()}
    try:
        manifest = captured.write_payloads(folder)
        files.write_new(temporary, [manifest_file.to_text(manifest).encode()])
        # The payloads' names must be on the disk before a manifest is that points to them.
        files.sync_folder(folder)
    except BaseException:
        # Before the swap nothing points to the new files. After it they may be the only state there is.
        _sweep(folder, there)
        raise
    temporary.replace(folder / MANIFEST)
    files.sync_folder(folder)
    return manifest


def _sweep(folder: Path, kept: set[str]) -> None:
    """Delete our files in the folder but those that are kept; what resists is left to the next save."""
    with contextlib.suppress(OSError):
        for one in list(folder.iterdir()):
            if is_ours(one.name) and one.name not in kept:
                one.unlink()

"""The loads of one process of a script: sampled as they happen, written with the load record, noted afterwards."""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from weakref import ref

import torch

from ckptcheck.state.tensor_bytes import default_algorithm
from ckptcheck.trace.items import GIVEN, OVERWRITTEN, Item, Sample
from ckptcheck.trace.measuring import Measurer, plain
from ckptcheck.trace.sampling import class_of
from ckptcheck.trace.script.given import (
    ObjectLoad,
    Owners,
    Side,
    Writing,
    given_optimizer,
    keys_of,
    leaves_of,
    live_optimizer,
    of_module,
)
from ckptcheck.trace.script.guard import GUARD, belongs_to_script
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.optimizers import members
from ckptcheck.trace.script.said import said, said_by_itself
from ckptcheck.trace.subjects import Subjects

MAX_NOTES: Final = 200
"""So many loads of a training in progress are noted; all are counted."""
_GPU: Final = "/dev/nvidiactl"

Write = Callable[[int, str, dict[Item, Sample]], None]
"""Writes the samples of a moment: step, moment, samples."""


class _Here(threading.local):
    """The notes of the loads that are in progress in this thread, the innermost last."""

    def __init__(self) -> None:
        self.running: list[dict[str, Any]] = []


class Loads:
    """Takes what is told of loads. Whatever goes wrong in here is noted, and the script goes on.

    `algorithm` is the digest that was asked for, None for what fits the devices; `step` tells the step in progress.
    `cost_s` is the time that the script waited, in seconds.
    """

    def __init__(self, algorithm: str | None, modules: Modules, step: Callable[[], int]) -> None:
        self._algorithm = algorithm
        self._modules = modules
        self._step = step
        self._measurer: Measurer | None = None
        self._loads: dict[int, ObjectLoad] = {}
        self._notes: list[dict[str, Any]] = []
        self._early = 0
        """How many of the notes are of loads before the training began."""
        self._began = False
        self._left_out = 0
        self._here = _Here()
        self.cost_s = 0.0

    def before_load(self, section: str, loaded: Any, given: Any, options: dict[str, Any]) -> None:
        """Sample what an object is given and what it has. Nothing of either is kept."""
        note: dict[str, Any] = {"section": section, "class": class_of(loaded), "step": self._step()}
        note |= {key: value for key, value in options.items() if isinstance(value, bool)}
        self._here.running.append(note)
        if GUARD.off:
            return
        started = time.perf_counter()
        try:
            if self._began:
                note["given"] = len(given) if isinstance(given, Mapping) else None
            else:
                self._add(section, loaded, given, note)
        except Exception as error:  # a guard: the load goes on, and that it was not seen is told
            if belongs_to_script(error):
                raise
            note["unseen"] = said(error)
        self._keep(note)
        self.cost_s += time.perf_counter() - started

    def _add(self, section: str, loaded: Any, given: Any, note: dict[str, Any]) -> None:
        """Of several loads into one object the last that was given counts, and what was built at first."""
        built, theirs, more = self._sampled(section, loaded, given)
        note |= more
        known = self._loads.get(id(loaded))
        if known is not None and known.loaded() is loaded:
            known.note["superseded"] = True
            known.given, known.note = theirs, note
        else:
            self._loads[id(loaded)] = ObjectLoad(ref(loaded), section, built, theirs, note)

    def after_load(self, loaded: Any, returned: Any) -> None:
        """A load has returned; a module's tells which keys it did not find."""
        note = self._over()
        if note is None or not issubclass(type(returned), tuple):  # as torch's own; nothing else is looked into
            return
        missing, unexpected = getattr(returned, "missing_keys", None), getattr(returned, "unexpected_keys", None)
        if isinstance(missing, list) and isinstance(unexpected, list):
            note |= keys_of([*map(str, missing)], [*map(str, unexpected)])

    def load_raised(self, loaded: Any, error: BaseException) -> None:
        """A load has raised."""
        note = self._over()
        if note is not None:
            note["raised"] = said_by_itself(error)

    def _over(self) -> dict[str, Any] | None:
        """The note of the load that is over; None for one whose beginning was not told."""
        running = self._here.running
        return running.pop() if running else None

    def write(self, subjects: Subjects, write: Write) -> None:
        """Write what was built and given at step 0, where anything was loaded; from here on the training has begun."""
        self._began, self._early = True, len(self._notes)
        loads = [one for one in self._loads.values() if one.loaded() is not None]
        self._loads.clear()
        if self._notes:
            writing = Writing(subjects, self._measurer.algorithm if self._measurer else "")
            writing.write(loads, self._notes)
            write(0, OVERWRITTEN, writing.built)
            write(0, GIVEN, writing.given)

    def write_failed(self, subjects: Subjects, write: Write) -> bool:
        """As `write`, if a load raised in a script that made no update; whether anything was written."""
        failed = not self._began and any("raised" in note for note in self._notes)
        if failed:
            self.write(subjects, write)
        return failed

    def write_late(self, write: Write) -> None:
        """Write the notes of loads that came later, each with its step, when the training has ended."""
        late = self._notes[self._early :]
        if late:
            told = {"digest": "", "loads": late, "left_out": self._left_out}
            write(self._step(), GIVEN, {Item("structure", "loads"): plain(json.dumps(told))})

    def _keep(self, note: dict[str, Any]) -> None:
        if len(self._notes) < self._early + MAX_NOTES:
            self._notes.append(note)
        else:
            self._left_out += 1

    def _sampled(self, section: str, loaded: Any, given: Any) -> tuple[Side, Side, dict[str, Any]]:
        measurer = self._measuring()
        if section == "model":
            return of_module(loaded, given, measurer)
        if section == "optimizer":
            owners = Owners(self._modules.roots(members(loaded)))
            theirs, named = given_optimizer(loaded, given, owners, measurer)
            return live_optimizer(loaded, owners, measurer), theirs, {"named": named}
        return leaves_of(loaded.state_dict(), measurer), leaves_of(given, measurer), {}

    def _measuring(self) -> Measurer:
        if self._measurer is None:
            self._measurer = Measurer(self._algorithm or default_algorithm({_likely_device()}))
        return self._measurer


def _likely_device() -> str:
    """The device that the training will run on. A script may load before it touches a GPU, which we must not do."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cuda"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return "cuda" if torch.version.cuda is not None and Path(_GPU).exists() and not hidden else "cpu"

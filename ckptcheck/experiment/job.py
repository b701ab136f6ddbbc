"""What one worker process is told to do, and how its run ended."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """One run in one fresh process. Steps are counted from 1; `first` is k+1 in a run resumed after step k.

    `load_from` is what `load` gets, inside `workdir`. `saves` maps a step to the path that `save` gets after it.
    `store` forces the tool's own store. `trace` is the file to record into, None for no recording. `capture`
    is a folder in which the tensors named in `wanted` are laid out moment by moment for a second pass.

    With `dry_run`, a checkpoint of any format, the job is to build, load it and record, and to train no step; the
    target's own load gets a copy, or nothing where `may_execute` is False and its pickles can run code.
    """

    name: str
    target: str
    workdir: Path
    first: int
    last: int
    device: str = "cpu"
    seed: int = 0
    digest: str | None = None
    deterministic: bool = False
    store: bool = False
    load_from: Path | None = None
    saves: dict[int, Path] = field(default_factory=dict)
    trace: Path | None = None
    capture: Path | None = None
    wanted: Path | None = None
    dry_run: Path | None = None
    may_execute: bool = True

    def to_json(self) -> str:
        """The job as JSON."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """The job that `to_json` wrote."""
        values = json.loads(text)
        for name in ("workdir", "load_from", "trace", "capture", "wanted", "dry_run"):
            values[name] = Path(values[name]) if values[name] is not None else None
        values["saves"] = {int(step): Path(path) for step, path in values["saves"].items()}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: "ended", "raised", "died" (by a signal or an exit of its own) or "hung".

    `phase` is start, import, build, load, step, save or end; `step` is the step that it was in, or None.
    `error` names the exception, the signal, or the time limit. `training_s` is the time spent in the target's
    own `step`, `recording_s` in the recorder, `total_s` the life of the process, in seconds. `facts` holds
    versions, devices, thread counts and what the target declared.
    """

    name: str
    status: str
    phase: str
    step: int | None
    error: str
    last_lines: str
    total_s: float
    training_s: float
    recording_s: float
    facts: dict[str, Any]

    @property
    def place(self) -> str:
        """The phase in words."""
        in_step = f"step {self.step}"
        return {
            "start": "while starting",
            "import": "while importing the target",
            "build": "in the target's factory",
            "load": "while loading the checkpoint",
            "step": f"in {in_step}",
            "save": f"while saving after {in_step}",
            "end": "at its end",
        }[self.phase]

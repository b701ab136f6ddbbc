"""What one worker process is told to do, and how its run ended."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from ckptcheck.experiment.sections import Overlay


class Errand(Protocol):
    """What a worker process can be sent on."""

    @property
    def module(self) -> str:
        """The module whose `main` does it, from the order's file and two descriptors."""
        ...

    @property
    def name(self) -> str:
        """Its name, which is that of its log too."""
        ...

    @property
    def workdir(self) -> Path:
        """A folder of its own."""
        ...

    @property
    def last(self) -> int:
        """The last step, for who shows progress."""
        ...

    @property
    def deterministic(self) -> bool:
        """Whether torch is told to be."""
        ...

    @property
    def capture(self) -> Path | None:
        """The folder in which captured moments are laid out, None where there are none."""
        ...

    def to_json(self) -> str:
        """The order."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One run in one fresh process. Steps are counted from 1; `first` is k+1 in a run resumed after step k.

    `load_from` is what `load` gets, inside `workdir`. `saves` maps a step to the path that `save` gets after it.
    `store` forces the tool's own store. `trace` is the file to record into, None for no recording. `capture`
    is a folder in which the tensors named in `wanted` are laid out moment by moment for a second pass.

    With `dry_run`, a checkpoint of any format, the job is to build, load it and record, and to train no step; the
    target's own load gets a copy, or nothing where `may_execute` is False and its pickles can run code.

    With `warn`, torch warns of operations that are not deterministic, and the run's facts name them.

    `keeps` maps a step to the folder in which our own store keeps the whole live state after it and after its save.
    With `overlay`, what it chooses of the state kept in `overlay_from` is put back right after the load.
    """

    module: ClassVar[str] = "ckptcheck.experiment.worker"

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
    warn: bool = False
    keeps: dict[int, Path] = field(default_factory=dict)
    overlay: Overlay | None = None
    overlay_from: Path | None = None

    def to_json(self) -> str:
        """The job as JSON."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """The job that `to_json` wrote."""
        values = json.loads(text)
        for name in ("workdir", "load_from", "trace", "capture", "wanted", "dry_run", "overlay_from"):
            values[name] = Path(values[name]) if values[name] is not None else None
        for name in ("saves", "keeps"):
            values[name] = {int(step): Path(path) for step, path in values[name].items()}
        values["overlay"] = Overlay.of_json(values["overlay"]) if values["overlay"] is not None else None
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: "ended", "raised", "died" (by a signal or an exit of its own) or "hung".

    `phase` is start, import, build, load, overlay, step, save, keep or end; `step` is the step that it was in, or
    None. `error` names the exception, the signal, or the time limit. `training_s` is the time spent in the target's
    own `step`, `recording_s` in the recorder, `total_s` the life of the process, in seconds. `facts` holds versions,
    devices, thread counts and what the target declared.
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
            "overlay": "while parts of its state were put back",
            "save": f"while saving after {in_step}",
            "keep": f"while its state was kept after {in_step}",
            "end": "at its end",
        }[self.phase]

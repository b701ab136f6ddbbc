"""What the parent tells the recorder inside a script: a file of JSON, named by an environment variable."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "CKPTCHECK_ORDERS"
"""The environment variable that names the file; where it is absent, nothing is recorded."""


@dataclass(frozen=True, slots=True)
class Orders:
    """How to record the processes of one command.

    Attributes:
        traces: the folder in which each process that trains writes one trace file.
        run: what the run is called in results: "reference", "repeat", "resumed", "recording".
        command: the words of the command, for the header.
        digest: the algorithm; None for the best one at hand, which the header then names.
        every: sample every n-th step only, counted from the begin of the training.
        first_step: the step of that training after which this process goes on, where the parent knows it.
        always: steps of this process that are sampled whatever `every` says.
        only: globs over names of parameters and buffers; what matches none is not sampled. Empty for all.
        grads: whether gradients are sampled.
        last_step: stop recording after this step; None for the end of the script.
        hold: with `last_step`, wait there to be ended by the parent, instead of letting the script go on.
        output: the run's output folder. The trace notes after which steps something in it had changed.
        control: a folder for what processes and the parent tell each other in files; None where nobody is asked.
        pause_after: the step after which every rank waits until the parent has copied the output folder.
        signal_after: (number of a signal, step): the process of rank 0 tells the parent to send it after this step.
        capture: a folder in which wanted tensors are laid out, as `wanted` says; None for none.
        wanted: a file with rows {"step", "moment", "items"}; None for none.
        bound: whether a process that finds its parent gone, at a step, ends itself.
    """

    traces: Path
    run: str = "recording"
    command: tuple[str, ...] = ()
    digest: str | None = None
    every: int = 1
    first_step: int = 0
    always: tuple[int, ...] = ()
    only: tuple[str, ...] = ()
    grads: bool = True
    last_step: int | None = None
    hold: bool = False
    output: Path | None = None
    control: Path | None = None
    pause_after: int | None = None
    signal_after: tuple[int, int] | None = None
    capture: Path | None = None
    wanted: Path | None = None
    bound: bool = False

    def to_json(self) -> str:
        """The orders as JSON."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """The orders that `to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        for name in ("traces", "output", "control", "capture", "wanted"):
            values[name] = Path(values[name]) if values[name] is not None else None
        for name in ("command", "only", "always"):
            values[name] = tuple(values[name])
        values["signal_after"] = tuple(values["signal_after"]) if values["signal_after"] is not None else None
        return cls(**values)


def orders_of(environment: Mapping[str, str] = os.environ) -> Orders | None:
    """The orders for this process; None where there are none. OSError or ValueError where they cannot be read."""
    path = environment.get(VARIABLE)
    return Orders.from_json(Path(path).read_text()) if path else None

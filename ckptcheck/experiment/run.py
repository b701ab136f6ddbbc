"""What a target returns: the live objects of a training run, and how to make one step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Context:
    """What a target's factory is told about the run that it builds.

    `device` is where to train; `seed` is there to be used, the tool itself seeds nothing; `workdir` is an
    existing folder of this run's own.
    """

    device: "torch.device"
    seed: int
    workdir: Path


@dataclass(slots=True)
class Run:
    """The live objects of one training run. Only `model` and `step` are needed.

    `model` is a module or a dict of modules; `optimizer`, `scheduler`, `scaler` and `ema` are each one or a
    list; `optimizer=None` means hand-written updates. `data` and every value of `extra` have `state_dict` and
    `load_state_dict`. `step(s)` performs step s, counted from 1, and may return the loss. `save(path)` and
    `load(path)` are the checkpoint code under test; without them the tool's own store is used. `freeze` maps a
    glob over parameter names to a contract: no-grad, no-update, hold, removed or reset.

    The fields are read anew at every step, so a `load` that builds, say, a new scheduler may assign it here.
    """

    model: Any
    step: Callable[[int], Any]
    optimizer: Any = None
    scheduler: Any = None
    scaler: Any = None
    ema: Any = None
    data: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    save: Callable[[Path], None] | None = None
    load: Callable[[Path], None] | None = None
    freeze: Mapping[str, str] = field(default_factory=dict)

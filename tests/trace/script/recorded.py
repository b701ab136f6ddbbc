"""A script's recording within this process: everything that `start` puts together, undone at the end."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ckptcheck.trace.items import STEP, Item, Sample
from ckptcheck.trace.reading import Trace, open_traces
from ckptcheck.trace.script import load_calls
from ckptcheck.trace.script.listening import Listening
from ckptcheck.trace.script.modules import Modules
from ckptcheck.trace.script.notes import Notes
from ckptcheck.trace.script.optimizers import Optimizers
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.recording import Recording
from ckptcheck.trace.script.sections import Sections

# The recorder looks through everything alive: what pytest and torch have made so far need not be looked at each time.
gc.collect()
gc.freeze()


@contextmanager
def recording(folder: Path, raised: str = "", **orders: Any) -> Iterator[Recording]:
    """Record what happens inside; errors of the recorder are raised as they come."""
    modules, optimizers, notes = Modules(), Optimizers(), Notes()
    sections = Sections(modules)
    recorder = Recording(Orders(traces=folder, **orders), modules, optimizers, sections, notes)
    undo = [one.listen() for one in (modules, optimizers, sections, Listening(recorder, modules, optimizers, notes))]
    undo.append(load_calls.listen(recorder))
    try:
        yield recorder
    finally:
        for one in reversed(undo):
            one()
        recorder.end(raised)


def record(folder: Path, script: Callable[[], Any], **orders: Any) -> Trace:
    """The trace of a script that is a function."""
    with recording(folder, **orders):
        script()
    (trace,) = open_traces(folder)
    return trace


def steps(trace: Trace) -> list[dict[Item, Sample]]:
    """The samples of each step."""
    return [trace.samples(step, STEP) for step in trace.steps]


def kinds(samples: dict[Item, Sample], kind: str) -> dict[str, Sample]:
    """The samples of one kind by name, key and, from the second on, part."""
    return {
        ".".join([one.name, *([one.key] if one.key else []), *([f"#{one.part}"] if one.part else [])]): sample
        for one, sample in samples.items()
        if one.kind == kind
    }


def model(seed: int = 0, *more: nn.Module) -> nn.Sequential:
    """Three inputs, two outputs."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), *more, nn.Linear(4, 2))


def batch(number: int) -> torch.Tensor:
    """Five rows of three, the same for the same number; draws from no generator of the process."""
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(number))

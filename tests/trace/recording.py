"""Recording a run in this process, and what its samples must be, by other means than the code under test."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from xxhash import xxh3_128_digest

from ckptcheck.experiment.run import Run
from ckptcheck.state.digest import XXH3_128
from ckptcheck.trace.file import Trace, TraceWriter
from ckptcheck.trace.items import STEP, Item, Sample
from ckptcheck.trace.recorder import Recorder
from ckptcheck.trace.subjects import from_run

HEADER = {"digest": XXH3_128, "run": "test"}


def record(folder: Path, run: Run, steps: int = 1, tap: Any = None, whole: bool = True) -> Trace:
    """Record steps 1 to `steps` as a worker does, and open the trace."""
    path = folder / f"{len(list(folder.glob('*.trace')))}.trace"
    writer = TraceWriter(path, HEADER)
    recorder = Recorder(from_run(run), writer, XXH3_128, tap)
    if whole:
        recorder.load(0)
    with recorder:
        for step in range(1, steps + 1):
            recorder.begin(step)
            recorder.end(step, run.step(step))
        recorder.finish(steps)
    writer.close(clean=True)
    return Trace(path)


def step_samples(folder: Path, step: Callable[[int], Any], **fields: Any) -> dict[Item, Sample]:
    """The samples of one recorded step."""
    return record(folder, Run(step=step, **fields), whole=False).samples(1, STEP)


def of(tensor: torch.Tensor) -> bytes:
    """The digest of a dense tensor, taken now."""
    return xxh3_128_digest(tensor.detach().clone().contiguous().view(-1).view(torch.uint8).numpy().tobytes())


def of_text(text: str) -> bytes:
    """The digest of a plain value by its canonical text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def kind(samples: dict[Item, Sample], name: str) -> dict[Item, Sample]:
    """The samples of one kind."""
    return {item: sample for item, sample in samples.items() if item.kind == name}


def names(samples: dict[Item, Sample], name: str) -> list[str]:
    """The names of the items of one kind, sorted."""
    return sorted({item.name for item in samples if item.kind == name})

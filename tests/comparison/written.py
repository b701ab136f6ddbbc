"""Small traces and states written by hand, for tests of what compares them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckptcheck.state.digest import Digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState
from ckptcheck.trace.file import Trace, TraceWriter
from ckptcheck.trace.items import NONZERO, STEP, Item, Sample
from ckptcheck.trace.measuring import plain

Moments = Mapping[tuple[int, str], Mapping[Item, Sample]]


def content(value: Any) -> bytes:
    """Sixteen bytes that stand for some content."""
    return repr(value).encode().ljust(16, b".")[:16]


def tensor(value: Any, *shape: int, dtype: str = "float32") -> Sample:
    return Sample(TensorSpec(dtype, shape or (2, 2)), content(value), norm=1.0)


def gradient(value: Any, presence: int = NONZERO) -> Sample:
    if value is None:
        return Sample(None, None, 0)
    return tensor(value)._replace(presence=presence)


def groups(*optimizers: list[list[str | None]]) -> dict[Item, Sample]:
    described = [{"class": "SGD", "groups": one} for one in optimizers]
    return {Item("structure", "groups"): plain(json.dumps(described))}


def frozen(*names: str) -> dict[Item, Sample]:
    return {Item("structure", "frozen"): plain(json.dumps(list(names)))}


def steps(*samples: Mapping[Item, Sample], first: int = 1) -> Moments:
    return {(first + place, STEP): one for place, one in enumerate(samples)}


def write(path: Path, moments: Moments, digest: str = "xxh3_128", **header: Any) -> Trace:
    writer = TraceWriter(path, {"digest": digest, **header})
    for (step, moment), samples in moments.items():
        writer.write(step, moment, samples.items())
    writer.close(clean=True)
    return Trace(path)


def entry(value: Any, *shape: int, dtype: str = "float32") -> Entry:
    return Entry(TensorSpec(dtype, shape or (2, 2)), Digest("xxh3_128", content(value)))


def number(value: Any) -> Entry:
    sample = plain(value)
    return Entry(None, Digest("blake2b_128", sample.digest), value=sample.value)


def optimizer(members: list[list[str | None]], state: Mapping[str, Mapping[str, Entry]], **values: float) -> Optimizer:
    hyper = {name: number(value) for name, value in values.items()}
    return Optimizer("SGD", tuple(Group(tuple(one), hyper) for one in members), state)


def state_of(*optimizers: Optimizer, parameters: Mapping[str, Any] | None = None, **more: Any) -> TrainingState:
    named = {
        name: value if isinstance(value, Parameter) else Parameter(name, entry(value), requires_grad=True)
        for name, value in (parameters or {"a": 1, "b": 2}).items()
    }
    return TrainingState("written", 3, named, optimizers=optimizers, **more)

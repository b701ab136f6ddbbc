"""Checkpoints held in memory, for comparisons: real tensors behind lazy references that count what is read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ckptcheck.comparison.checkpoint_diff import DiffOptions
from ckptcheck.comparison.checkpoints import diff_checkpoints
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.digest import PLAIN_DIGEST, Digest, plain_digest
from ckptcheck.state.raw import Raw, RawTensor, RawTree, Storage
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState
from ckptcheck.state.tree import canonical


def raw_tensor(tensor: torch.Tensor, key: str = "", reads: list[int] | None = None) -> RawTensor:
    """A lazy tensor over the bytes of a real one. `key` names its storage, `reads` learns the size of each read."""
    spec = TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
    return of_bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), spec, key, reads)


def of_bytes(content: bytes, spec: TensorSpec, key: str = "", reads: list[int] | None = None) -> RawTensor:
    """A lazy tensor over bytes."""

    def read_into(start_bytes: int, buffer: memoryview) -> None:
        if reads is not None:
            reads.append(len(buffer))
        buffer[:] = content[start_bytes : start_bytes + len(buffer)]

    return RawTensor(spec, read_into, Storage("", key, len(content)) if key else None)


def entry(value: Any) -> Entry:
    """A tensor, lazily, or a plain value with its digest."""
    if isinstance(value, Entry):
        return value
    if isinstance(value, torch.Tensor):
        value = raw_tensor(value)
    if isinstance(value, RawTensor):
        return Entry(value.spec, None, ref=value)
    text = canonical(value)
    plain = value if isinstance(value, bool | int | float) else text
    return Entry(None, Digest(PLAIN_DIGEST, plain_digest(text)), value=plain)


def entries(values: Mapping[str, Any]) -> dict[str, Entry]:
    return {key: entry(value) for key, value in values.items()}


def optimizer(
    groups: Sequence[Sequence[str | None]],
    state: Mapping[str, Mapping[str, Any]] | None = None,
    hyperparameters: Sequence[Mapping[str, Any]] | None = None,
) -> Optimizer:
    values = hyperparameters or [{"lr": 0.1} for _ in groups]
    return Optimizer(
        None,
        tuple(Group(tuple(members), entries(value)) for members, value in zip(groups, values, strict=True)),
        {name: entries(kept) for name, kept in (state or {}).items()},
    )


def checkpoint(
    model: Mapping[str, Any] | None = None,
    *optimizers: Optimizer,
    buffers: Mapping[str, Any] | None = None,
    ties: Mapping[str, Sequence[str]] | None = None,
    gradients: Mapping[str, Any] | None = None,
    unnamed: bool = False,
    naming: Naming | None = None,
    labels: Sequence[str] = (),
    step: int | None = None,
    models: Mapping[str, Raw] | None = None,
    rng: Mapping[str, Any] | None = None,
    modes: Mapping[str, bool] | None = None,
    **sections: Mapping[str, Any],
) -> Checkpoint:
    parameters = {
        name: Parameter(
            name,
            entry(value),
            aliases=tuple((ties or {}).get(name, ())),
            grad=entry(gradients[name]) if gradients and name in gradients else None,
        )
        for name, value in (model or {}).items()
    }
    state = TrainingState(
        source="memory",
        step=step,
        parameters=parameters,
        buffers=entries(buffers or {}),
        optimizers=optimizers,
        sections={section: entries(values) for section, values in sections.items()},
        rng=entries(rng or {}),
        modes=modes or {},
    )
    source = NameSource.NONE if unnamed else NameSource.PARAM_NAMES
    naming = naming or Naming(source, certain=not unnamed, reason="")
    raw = RawTree(Path("memory"), "pickle", {}, 0)
    namings = tuple(naming for _ in optimizers)
    return Checkpoint(raw, "plain", state, namings, optimizer_labels=tuple(labels), models=models or {})


GROUPS = (("fc.weight", "fc.bias"), ("out.weight",))


def weights():
    made = torch.Generator().manual_seed(0)
    return {
        "fc.weight": torch.randn(30, 40, generator=made),
        "fc.bias": torch.zeros(30),
        "out.weight": torch.randn(30, 40, generator=made),
    }


def moments():
    made = torch.Generator().manual_seed(1)
    return {
        name: {
            "step": torch.tensor(5.0),
            "exp_avg": torch.randn(value.shape, generator=made),
            "exp_avg_sq": torch.rand(value.shape, generator=made),
        }
        for name, value in weights().items()
    }


def trained(state=None, groups=GROUPS, values=None, **parts):
    model = parts.pop("model", None) or weights()
    return checkpoint(model, optimizer(groups, moments() if state is None else state, values), **parts)


def diff(left, right, **options):
    return diff_checkpoints(left, right, DiffOptions(**options))


def told(found):
    """Each row as (place, kind), in order."""
    return [
        ("/".join(part for part in (row.section, row.parameter, row.key) if part), row.kind.value) for row in found.rows
    ]


def nudged(tensor, place=0):
    """The tensor with one element one ULP further."""
    moved = tensor.clone()
    flat = moved.view(-1)
    flat[place] = torch.nextafter(flat[place], torch.tensor(torch.inf))
    return moved

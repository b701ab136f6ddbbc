"""Live training objects as what a checkpoint of them must say, taken from torch itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState

State = Mapping[str, Mapping[str, Any]]
"""Parameter name and state key to a tensor or a number."""


def names_of(model: nn.Module) -> dict[torch.Tensor, str]:
    """Each parameter's first name."""
    return {parameter: name for name, parameter in model.named_parameters()}


def state_of(model: nn.Module, optimizer: Any) -> dict[str, dict[str, Any]]:
    """The optimizer's state by parameter name, as the live objects hold it."""
    names = names_of(model)
    return {names[one]: dict(kept) for one, kept in optimizer.state.items() if kept}


def described(model: nn.Module, optimizers: Sequence[Any]) -> TrainingState:
    """What a target that builds these would tell before a load: names, shapes and groups."""
    names = names_of(model)
    parameters = {name: Parameter(name, _entry(one), requires_grad=one.requires_grad) for one, name in names.items()}
    return TrainingState(
        source="live",
        step=None,
        parameters=parameters,
        buffers={name: _entry(one) for name, one in model.named_buffers()},
        optimizers=tuple(
            Optimizer(type(one).__name__, tuple(Group(tuple(names[p] for p in group["params"]))
                                                for group in one.param_groups))
            for one in optimizers
        ),
    )  # fmt: skip


def _entry(tensor: torch.Tensor) -> Entry:
    return Entry(TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)), None)


def held(state: Mapping[str, Mapping[str, Entry]]) -> dict[str, dict[str, bytes | float]]:
    """What a checkpoint's optimizer state holds: bytes of tensors, numbers."""
    return {
        name: {key: bytes(one.ref.fetch()) if one.ref is not None else float(one.value) for key, one in kept.items()}
        for name, kept in state.items()
    }


def bytes_of(state: State) -> dict[str, dict[str, bytes | float]]:
    """The same of live objects."""
    return {
        name: {
            key: one.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            if isinstance(one, torch.Tensor) else float(one)
            for key, one in kept.items()
        }
        for name, kept in state.items()
    }  # fmt: skip

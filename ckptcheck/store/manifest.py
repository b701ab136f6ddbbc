"""The manifest: everything about a stored training state but the bytes of its tensors.

The file is one JSON object: `format`, `version`, `tool` (its version), `digest` (SHA-256 over the exact text of
`state`) and `state`, whose fields are those of `Manifest`. Values stand in the tagged encoding of `encoding`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ckptcheck.state.digest import Digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Scalar

Encoded: TypeAlias = Any
"""A value in the tagged encoding: JSON, to be read by `encoding.Decoder` only."""


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A dense tensor in a payload. `stride` is in elements, None for row-major; `value` is that of a single element."""

    spec: TensorSpec
    digest: Digest
    stride: tuple[int, ...] | None = None
    value: bool | int | float | None = None


@dataclass(frozen=True, slots=True)
class PayloadRecord:
    """A payload: its file name in the folder, its size, and its tensors by key."""

    file: str
    size_bytes: int
    tensors: Mapping[str, TensorRecord]


@dataclass(frozen=True, slots=True)
class ParameterRecord:
    """A parameter, whose value is the model payload's tensor of the same name; `gradient` is None where it has none."""

    requires_grad: bool
    aliases: tuple[str, ...]
    presence: str
    gradient: Encoded


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A param group: members by parameter name in order, and everything else that it holds."""

    members: tuple[str, ...]
    hyperparameters: Encoded


@dataclass(frozen=True, slots=True)
class OptimizerRecord:
    """An optimizer: class, groups, and state by parameter name.

    `orphans` is the state of parameters in no group, `unnamed` the [value, gradient, requires_grad] of members that
    no module holds, `loose` the state under keys that are no tensors, `rest` what else the state_dict holds: all of
    it for an optimizer without groups, where `groups` is None.
    """

    class_name: str
    groups: tuple[GroupRecord, ...] | None
    state: Mapping[str, Encoded]
    orphans: Mapping[str, Encoded]
    unnamed: Mapping[str, Encoded]
    loose: Encoded
    rest: Encoded


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """The class and the state_dict of a scheduler, scaler, EMA, data or extra object."""

    class_name: str
    state: Encoded


@dataclass(frozen=True, slots=True)
class Manifest:
    """A stored training state. `sections` maps a section and a label (position, or name in `extra`) to its object.

    `module_states` holds the extra state of modules that define one, `rng` the generators by name, `modes`
    whether each module trains; `flags` and `versions` say in what surroundings it was saved and are not restored.
    """

    step: int | None
    payloads: Mapping[str, PayloadRecord]
    parameters: Mapping[str, ParameterRecord]
    buffers: tuple[str, ...]
    optimizers: tuple[OptimizerRecord, ...]
    sections: Mapping[str, Mapping[str, ObjectRecord]]
    module_states: Mapping[str, Encoded]
    rng: Mapping[str, Encoded]
    modes: Mapping[str, bool]
    flags: Mapping[str, Scalar]
    versions: Mapping[str, str] = field(default_factory=dict)


def checksum(state_text: str) -> str:
    """What `digest` holds for the text of `state`."""
    return f"sha256:{hashlib.sha256(state_text.encode()).hexdigest()}"

"""The one noun that rules judge: a training state, by parameter name, from live objects and from files alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ckptcheck.state.digest import Digest
from ckptcheck.state.tensor import TensorRef, TensorSpec

Scalar: TypeAlias = bool | int | float | str

SECTIONS = ("schedule", "scaler", "ema", "data", "extra")
"""The parts of a training state that are trees of their own: paths of a state_dict to entries."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor or one plain value.

    `spec` is None for a plain Python value. `value` is the value of a plain number or one-element tensor, the
    canonical text of any other plain value, and None for larger tensors. `norm` is the L2 norm where it was
    taken. `ref` fetches the bytes where a file stands behind the state.
    """

    spec: TensorSpec | None
    digest: Digest | None
    norm: float | None = None
    value: Scalar | None = None
    ref: TensorRef | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor; 0 for a plain value."""
        return self.spec.nbytes if self.spec else 0


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named parameter: value, ties, whether it is trained, and its gradient.

    `presence` is "none", "zero" or "nonzero", or None where gradients were not looked at; `grad` is the gradient
    where there is one. `requires_grad` is None where the source does not say.
    """

    name: str
    entry: Entry
    aliases: tuple[str, ...] = ()
    requires_grad: bool | None = None
    presence: str | None = None
    grad: Entry | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A param group: its members by parameter name in order, and its hyperparameters.

    A member is None where the optimizer holds a tensor that the model does not.
    """

    members: tuple[str | None, ...]
    hyperparameters: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """One optimizer: its class by name, its groups, and its state by parameter name and state key.

    State of a tensor that the model does not hold stands under `unnamed(group, index)`.
    """

    class_name: str | None
    groups: tuple[Group, ...]
    state: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)

    @property
    def members(self) -> tuple[str, ...]:
        """Members by name, group after group; a tensor that the model does not hold is left out."""
        return tuple(name for group in self.groups for name in group.members if name is not None)

    def first_groups(self) -> dict[str, int]:
        """The first group of each member, for who asks of many; `group_of` looks through all groups for one."""
        found: dict[str, int] = {}
        for place, group in enumerate(self.groups):
            for member in group.members:
                if member is not None:
                    found.setdefault(member, place)
        return found

    def group_of(self, parameter: str) -> int | None:
        """The first group that the parameter is a member of, or None."""
        return next((place for place, group in enumerate(self.groups) if parameter in group.members), None)


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Everything that a resume needs, at one moment.

    `source` says in words where it comes from. `step` counts completed steps, None where unknown. `sections`
    maps each of `SECTIONS` that is present to its entries by path. `rng` maps a generator's name ("torch",
    "cuda:0", "numpy", "python") to its entry. `modes` maps a module's name to whether it is in train mode;
    `flags` maps names of determinism flags and thread counts to values. An empty mapping means that the source
    holds nothing of that kind.
    """

    source: str
    step: int | None
    parameters: Mapping[str, Parameter]
    buffers: Mapping[str, Entry] = field(default_factory=dict)
    optimizers: tuple[Optimizer, ...] = ()
    sections: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)
    rng: Mapping[str, Entry] = field(default_factory=dict)
    modes: Mapping[str, bool] = field(default_factory=dict)
    flags: Mapping[str, Scalar] = field(default_factory=dict)


def unnamed(group: int, index: int) -> str:
    """The name under which state of an optimizer's tensor stands that no module holds."""
    return f"<group {group}, index {index}: not in the model>"

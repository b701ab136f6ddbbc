"""An optimizer flattened to one key per value, as `flatten_optimizer_state_dict=True` leaves it (torchtitan).

`state.<parameter>.<key>` and `param_groups.<parameter>.<hyperparameter>`: parameter names have dots too, and the
groups themselves are not kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.conventions.entries import entries
from ckptcheck.conventions.weights import Weights
from ckptcheck.state.checkpoint import NameSource, Naming
from ckptcheck.state.raw import Raw, RawTensor
from ckptcheck.state.training_state import Entry, Group, Optimizer

STATE: Final = "state."
GROUPS: Final = "param_groups."
MAX_COMPARED_BYTES: Final = 64
"""Hyperparameters that are tensors are compared where they are a number or a few."""


@dataclass(frozen=True, slots=True)
class TakenApart:
    """The optimizer, how its parameters got their names, and values under keys of another form.

    `regrouped` says that the groups were made here, from equal hyperparameters.
    """

    optimizer: Optimizer
    naming: Naming
    regrouped: bool
    rest: Mapping[str, Raw] = field(default_factory=dict)


def is_flat(value: Raw) -> bool:
    """Whether every key begins as those of a flat optimizer do."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(key, str) and key.startswith((STATE, GROUPS)) for key in value)
    )


def is_surely_flat(value: Raw) -> bool:
    """Whether this is a flat optimizer whatever its key is: a model's own child may be called `state`."""
    return is_flat(value) and any(key.startswith(GROUPS) for key in value)


def take_apart(value: Mapping[str, Raw], model: Weights) -> TakenApart:
    """State and hyperparameters by parameter name; keys are split where the model's names end."""
    state: dict[str, dict[str, Raw]] = {}
    hyperparameters: dict[str, dict[str, Raw]] = {}
    rest: dict[str, Raw] = {}
    for key, one in value.items():
        prefix, put = (STATE, state) if key.startswith(STATE) else (GROUPS, hyperparameters)
        name, inner = _split(key.removeprefix(prefix), model)
        if name:
            put.setdefault(name, {})[inner] = one
        else:
            rest[key] = one
    found = {name: entries(one) for name, one in hyperparameters.items()}
    optimizer = Optimizer(None, _groups(found), {name: entries(one) for name, one in state.items()})
    naming = Naming(NameSource.KEYS, certain=True, reason="the state is keyed by name")
    return TakenApart(optimizer, naming, bool(found), rest)


def _split(text: str, model: Weights) -> tuple[str, str]:
    """A parameter's name and the key behind it: the longest name of the model, else all but the last part."""
    parts = text.split(".")
    for length in range(len(parts) - 1, 0, -1):
        name = model.name_of(".".join(parts[:length]))
        if name in model.parameters:
            return name, ".".join(parts[length:])
    name, _, inner = text.rpartition(".")
    return model.name_of(name), inner


def _groups(hyperparameters: Mapping[str, Mapping[str, Entry]]) -> tuple[Group, ...]:
    members: dict[Any, list[str]] = {}
    for name, values in hyperparameters.items():
        members.setdefault(tuple((key, _identity(one)) for key, one in sorted(values.items())), []).append(name)
    return tuple(Group(tuple(names), hyperparameters[names[0]]) for names in members.values())


def _identity(entry: Entry) -> Any:
    """What two equal hyperparameters have in common."""
    if entry.digest is not None:
        return entry.digest
    if isinstance(entry.ref, RawTensor) and entry.nbytes <= MAX_COMPARED_BYTES:
        return entry.spec, bytes(entry.ref.fetch())
    return id(entry)

"""What a checkpoint holds, as one list: every tensor and plain value with its section, name and group."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.checkpoint_diff import CONTENT_SECTIONS, section_of
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.tensor import TensorRef, TensorSpec
from ckptcheck.state.training_state import Entry, Optimizer, Scalar

_NAN: Final = re.compile(r"nan:[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor or plain value.

    `name` is a parameter's or buffer's name, None for what belongs to none; `key` is a state key, a hyperparameter,
    a generator or a path in the section, None for a parameter's own value.
    """

    section: str
    name: str | None
    key: str | None
    entry: Entry
    optimizer: int | None = None
    group: int | None = None
    aliases: tuple[str, ...] = ()
    requires_grad: bool | None = None

    @property
    def spec(self) -> TensorSpec | None:
        """The tensor's dtype and shape, None for a plain value."""
        return self.entry.spec

    @property
    def ref(self) -> TensorRef | None:
        """Where its bytes are read from."""
        return self.entry.ref


def items_of(checkpoint: Checkpoint) -> Iterator[Item]:
    """Everything in the order of the file, the sections in the order of reports."""
    state = checkpoint.state
    for name, parameter in state.parameters.items():
        yield Item("model", name, None, parameter.entry, None, None, parameter.aliases, parameter.requires_grad)
    for name, entry in state.buffers.items():
        yield Item("model", name, None, entry)
    for place, optimizer in enumerate(state.optimizers):
        yield from _of_optimizer(place, optimizer)
    later: dict[str, list[Item]] = {section: [] for section in CONTENT_SECTIONS}
    for name, parameter in state.parameters.items():
        if parameter.grad is not None:
            later["other"].append(Item("other", name, "grad", parameter.grad))
    later["rng"] += (Item("rng", None, generator, entry) for generator, entry in state.rng.items())
    for section, entries in state.sections.items():
        for path, entry in entries.items():
            told = section_of(section, path)
            later[told].append(Item(told, None, path, entry))
    for section in CONTENT_SECTIONS:
        yield from later[section]


def _of_optimizer(place: int, optimizer: Optimizer) -> Iterator[Item]:
    group_of = groups_by_member(optimizer)
    for group, one in enumerate(optimizer.groups):
        for key, entry in one.hyperparameters.items():
            yield Item("optimizer", None, key, entry, place, group)
    for name, state in optimizer.state.items():
        for key, entry in state.items():
            yield Item("optimizer", name, key, entry, place, group_of.get(name))


NONE: Final = "None"
"""The text that an entry has for None; a text of the same letters stands in quotes."""


def in_result(value: Scalar | None) -> Scalar | None:
    """A plain value as results tell it: a NaN, which is kept with its bits to tell it from others, is "nan"."""
    return "nan" if isinstance(value, str) and _NAN.fullmatch(value) else value


def groups_by_member(optimizer: Optimizer) -> dict[str, int]:
    """The first group of each member; `Optimizer.group_of` for all of them at once."""
    found: dict[str, int] = {}
    for group, one in enumerate(optimizer.groups):
        for member in one.members:
            if member is not None:
                found.setdefault(member, group)
    return found

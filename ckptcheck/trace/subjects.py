"""What is recorded: the live objects of a run, read anew at every step, in one shape."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch

from ckptcheck.state.naming import LiveNames, resolve
from ckptcheck.state.training_state import unnamed
from ckptcheck.trace.items import Item

_MAX_ENTRIES: Final = 200_000


class Slot(NamedTuple):
    """A member of an optimizer's groups, `held` by the model or not; `gradient` is the item of its gradient."""

    group: int
    place: int
    tensor: torch.Tensor
    name: str
    held: bool
    gradient: Item


@dataclass(slots=True)
class Subjects:
    """The objects behind a trace. Callables, since a load may put new objects in place of old ones.

    `model` returns a module or a dict of modules; `optimizers` a list; `sections` maps schedule, scaler, ema,
    data and extra to the objects whose state_dicts they are, by a prefix for their paths.
    """

    model: Callable[[], Any]
    optimizers: Callable[[], list[Any]]
    sections: Callable[[], Mapping[str, Mapping[str, Any]]]
    _names: LiveNames | None = field(default=None, init=False)
    _listed: dict[str, tuple[Any, list[tuple[Item, torch.Tensor]]]] = field(default_factory=dict, init=False)
    _slots: dict[int, tuple[Any, list[int], list["Slot"]]] = field(default_factory=dict, init=False)
    _entries: dict[tuple[int, str], tuple[tuple[str, ...], tuple[Item, ...]]] = field(default_factory=dict, init=False)

    def names(self) -> LiveNames:
        """The model's names; call `refresh` when modules or parameters may have been replaced."""
        if self._names is None:
            self._names = resolve(self.model())
        return self._names

    def refresh(self) -> LiveNames:
        """Resolve the names anew."""
        self._names = None
        return self.names()

    def name(self, names: LiveNames) -> None:
        """Have these names."""
        self._names = names

    def forget(self) -> None:
        """Let go of the model's tensors until names are asked for again."""
        self._names = None
        self._listed.clear()
        self._slots.clear()

    def items(self, kind: str, tensors: Mapping[str, torch.Tensor]) -> list[tuple[Item, torch.Tensor]]:
        """Items of a kind for tensors by name, made once for the very same mapping."""
        known = self._listed.get(kind)
        if known is None or known[0] is not tensors:
            known = self._listed[kind] = tensors, [(Item(kind, name), one) for name, one in tensors.items()]
        return known[1]

    def entries(self, place: int, name: str, keys: tuple[str, ...]) -> tuple[Item, ...]:
        """Items of state entries of one parameter, made once for the same keys."""
        known = self._entries.get((place, name))
        if known is None or known[0] != keys:
            if len(self._entries) > _MAX_ENTRIES:
                self._entries.clear()
            items = tuple(Item("state", name, key, place) for key in keys)
            known = self._entries[place, name] = keys, items
        return known[1]

    def slots(self, optimizer: Any) -> "list[Slot]":
        """Every member of an optimizer's groups; the very same list where neither they nor the names have changed."""
        names = self.names()
        held = [id(tensor) for members in optimizer.param_groups for tensor in members["params"]]
        held += [len(members["params"]) for members in optimizer.param_groups]
        known = self._slots.get(id(optimizer))
        if known is None or known[0] is not names.parameters or known[1] != held:
            slots = list(_slots(optimizer, names))
            known = self._slots[id(optimizer)] = names.parameters, held, slots
        return known[2]


def _slots(optimizer: Any, names: LiveNames) -> "Iterator[Slot]":
    for group, members in enumerate(optimizer.param_groups):
        for index, tensor in enumerate(members["params"]):
            name = names.name_of(tensor)
            known = name is not None
            name = name if name is not None else unnamed(group, index)
            yield Slot(group, index, tensor, name, known, Item("grad", name))


def from_run(run: Any) -> Subjects:
    """The subjects of an object with the fields of `ckptcheck.Run`."""

    def sections() -> dict[str, dict[str, Any]]:
        parts = {
            "schedule": as_list(run.scheduler),
            "scaler": as_list(run.scaler),
            "ema": as_list(run.ema),
            "data": as_list(run.data),
        }
        named = {kind: prefixed(objects) for kind, objects in parts.items() if objects}
        return {**named, **({"extra": dict(run.extra)} if run.extra else {})}

    return Subjects(lambda: run.model, lambda: as_list(run.optimizer), sections)


def as_list(one_or_many: Any) -> list[Any]:
    """None as no object, a list or tuple as its objects, anything else as one object."""
    if one_or_many is None:
        return []
    return list(one_or_many) if isinstance(one_or_many, list | tuple) else [one_or_many]


def prefixed(objects: list[Any]) -> dict[str, Any]:
    """Objects by a prefix for their paths: none where there is only one."""
    return {"": objects[0]} if len(objects) == 1 else {f"[{place}]": one for place, one in enumerate(objects)}

"""What a script gave to `load_state_dict`, and what was live before: sampled at once, written with the load record.

Names are told late: what is known of a tensor when it is loaded is which module holds it, and what that module is
called may show only when the training begins. Nothing here keeps a tensor or an object of the script alive.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import ref

import torch
from torch import nn

from ckptcheck.state.checkpoint import numbered
from ckptcheck.state.naming import LiveNames
from ckptcheck.state.training_state import unnamed
from ckptcheck.state.tree import flatten
from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.measuring import Measurer, plain
from ckptcheck.trace.subjects import Subjects

MAX_LISTED: Final = 50
"""So many missing and unexpected keys are listed; all are counted."""
_EXTRA: Final = "_extra_state"

Samples: TypeAlias = dict[Item, Sample]


class Held(NamedTuple):
    """Where a tensor is held: by which module, under which attribute. A tensor that no module holds has no place."""

    module: "ref[nn.Module]"
    own: str


Where: TypeAlias = Held | str | None
"""A place in a module, or a name that is known already."""


@dataclass(slots=True)
class Side:
    """One side of one object's load: what it was given, or what it had.

    `tensors` are (kind, where, sample); `groups` the members of each group; `hyper` are (group, key, sample); `state`
    are (where, key, sample); `leaves` are (path, sample) of a schedule or a scaler.
    """

    tensors: list[tuple[str, Where, Sample]] = field(default_factory=list)
    groups: list[list[Where]] = field(default_factory=list)
    hyper: list[tuple[int, str, Sample]] = field(default_factory=list)
    state: list[tuple[Where, str, Sample]] = field(default_factory=list)
    leaves: list[tuple[str, Sample]] = field(default_factory=list)


@dataclass(slots=True)
class ObjectLoad:
    """All loads of one object before the training began: what it had at first, what it was given at last."""

    loaded: "ref[Any]"
    section: str
    built: Side
    given: Side
    note: dict[str, Any]


class Owners:
    """Which module holds which parameter, at the moment."""

    def __init__(self, roots: Mapping[str, nn.Module]) -> None:
        self._held: dict[int, Held] = {}
        for root in roots.values():
            for module in root.modules():
                for own, tensor in module._parameters.items():
                    if tensor is not None:
                        self._held.setdefault(id(tensor), Held(ref(module), own))

    def of(self, tensor: Any) -> Held | None:
        """The place of a tensor; None where no module holds it."""
        return self._held.get(id(tensor))


def module_places(module: nn.Module) -> dict[str, tuple[str, Held]]:
    """Every key that `module.load_state_dict` takes: (param or buffer, who holds it)."""
    found: dict[str, tuple[str, Held]] = {}
    for path, one in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for own, tensor in one._parameters.items():
            if tensor is not None:
                found[prefix + own] = "param", Held(ref(one), own)
        for own, tensor in one._buffers.items():
            if tensor is not None and own not in one._non_persistent_buffers_set:
                found[prefix + own] = "buffer", Held(ref(one), own)
    return found


def of_module(module: nn.Module, given: Mapping[str, Any], measurer: Measurer) -> tuple[Side, Side, dict[str, Any]]:
    """(as built, as given, note) of a module's load."""
    places = module_places(module)
    built, theirs = Side(), Side()
    for kind, held in places.values():
        built.tensors.append((kind, held, measurer.leaf(_tensor(held))))
    for key, value in given.items():
        if isinstance(value, torch.Tensor):
            kind, where = places.get(key, ("param", None))
            theirs.tensors.append((kind, where if where is not None else str(key), measurer.leaf(value)))
    missing = [key for key in places if key not in given]
    unexpected = [str(key) for key in given if key not in places and not str(key).endswith(_EXTRA)]
    note: dict[str, Any] = {"given": len(given), "matched": len(places) - len(missing), "expected": len(places)}
    note |= keys_of(missing, unexpected)
    if places and not note["matched"]:
        note["live_keys"] = [*places][:MAX_LISTED]
    return built, theirs, note


def keys_of(missing: list[str], unexpected: list[str]) -> dict[str, Any]:
    """What a note says of a module's keys; only the first of them are listed."""
    return {"missing": missing[:MAX_LISTED], "missing_count": len(missing),
            "unexpected": unexpected[:MAX_LISTED], "unexpected_count": len(unexpected)}  # fmt: skip


def _tensor(held: Held) -> torch.Tensor | None:
    module = held.module()
    if module is None:
        return None
    found = module._parameters.get(held.own)
    return found if found is not None else module._buffers.get(held.own)


def live_optimizer(optimizer: Any, owners: Owners, measurer: Measurer) -> Side:
    """What an optimizer holds before it loads."""
    side = Side()
    slots: dict[int, Where] = {}
    for place, group in enumerate(optimizer.param_groups):
        members: list[Where] = [owners.of(tensor) for tensor in group["params"]]
        side.groups.append(members)
        for index, (tensor, where) in enumerate(zip(group["params"], members, strict=True)):
            slots[id(tensor)] = where if where is not None else unnamed(place, index)
        side.hyper += _hyper(place, group, measurer)
    for tensor, entries in getattr(optimizer, "state", {}).items():
        where = slots.get(id(tensor)) if isinstance(tensor, torch.Tensor) else str(tensor)
        if where is not None and entries:
            side.state += [(where, key, measurer.leaf(leaf)) for key, leaf in flatten(entries)]
    return side


def _hyper(place: int, group: Mapping[str, Any], measurer: Measurer) -> list[tuple[int, str, Sample]]:
    return [
        (place, path, measurer.leaf(leaf))
        for key, value in group.items()
        if key not in ("params", "param_names")
        for path, leaf in flatten(value, key)
    ]


def given_optimizer(optimizer: Any, given: Mapping[str, Any], owners: Owners, measurer: Measurer) -> tuple[Side, bool]:
    """What an optimizer is given, and whether that names its parameters.

    Where both the given groups and the live ones have `param_names`, a name leads to the live tensor of that name.
    """
    side = Side()
    live = dict(_named(optimizer, owners))
    known: dict[Any, Where] = {}
    named = True
    for place, group in enumerate(given["param_groups"]):
        ids, names = group["params"], group.get("param_names")
        named = named and (names is not None or all(isinstance(one, str) for one in ids))
        members: list[Where] = []
        for index, one in enumerate(ids):
            name = names[index] if names is not None and index < len(names) else one
            where: Where = live.get(name, name) if isinstance(name, str) else numbered(name)
            known.setdefault(one, where)
            members.append(where)
        side.groups.append(members)
        side.hyper += _hyper(place, group, measurer)
    for key, entries in given["state"].items():
        if entries:
            owner = known.get(key, known.get(_index(key)))
            where = owner if owner is not None else str(key) if isinstance(key, str) else numbered(key)
            side.state += [(where, path, measurer.leaf(leaf)) for path, leaf in flatten(entries)]
    return side, named


def _index(key: Any) -> Any:
    """A position that JSON has made a text, as the number that it was."""
    return int(key) if isinstance(key, str) and key.isdigit() else key


def _named(optimizer: Any, owners: Owners) -> Iterator[tuple[str, Held]]:
    for group in optimizer.param_groups:
        for name, tensor in zip(group.get("param_names") or (), group["params"], strict=False):
            if (held := owners.of(tensor)) is not None:
                yield name, held


def leaves_of(tree: Any, measurer: Measurer) -> Side:
    """A schedule's or a scaler's state."""
    return Side(leaves=[(path, measurer.leaf(leaf)) for path, leaf in flatten(tree)])


class Writing:
    """The loads of a script as samples, with the names that its objects have now."""

    def __init__(self, subjects: Subjects, measured_with: str) -> None:
        self._names: LiveNames = subjects.names()
        self._modules = self._names.names_of_modules
        self._optimizers = subjects.optimizers()
        self._prefixes = {
            id(one): (kind, prefix) for kind, objects in subjects.sections().items() for prefix, one in objects.items()
        }
        self._algorithm = measured_with
        self.given: Samples = {}
        self.built: Samples = {}

    def write(self, loads: list[ObjectLoad], notes: list[dict[str, Any]]) -> None:
        """Fill `given` and `built`; a load of an object that is none of the training's is noted only."""
        groups: list[list[dict[str, Any]]] = [[], []]
        for found in groups:
            found += [{"class": None, "groups": []} for _ in self._optimizers]
        for one in loads:
            loaded = one.loaded()
            one.note["name"] = self._place_of(one.section, loaded)
            if one.note["name"] is None:
                continue
            for side, samples, described in (
                (one.given, self.given, groups[0]), (one.built, self.built, groups[1]),
            ):  # fmt: skip
                self._side(one, side, samples, described, canonical=side is one.built)
        for samples, described in ((self.given, groups[0]), (self.built, groups[1])):
            samples[Item("structure", "groups")] = plain(json.dumps(described))
        self.given[Item("structure", "loads")] = plain(json.dumps({"digest": self._algorithm, "loads": notes}))

    def _place_of(self, section: str, loaded: Any) -> Any:
        """The name of a module, the place of an optimizer, the prefix of a schedule or scaler; None for a stranger."""
        if section == "model":
            return self._modules.get(id(loaded))
        if section == "optimizer":
            return next((place for place, one in enumerate(self._optimizers) if one is loaded), None)
        kind, prefix = self._prefixes.get(id(loaded), ("", None))
        return prefix if kind == section else None

    def _side(
        self, one: ObjectLoad, side: Side, samples: Samples, described: list[dict[str, Any]], *, canonical: bool
    ) -> None:
        name = one.note["name"]
        for kind, where, sample in side.tensors:
            said = self._said(where, canonical)
            if said is not None:
                samples[Item(kind, said if isinstance(where, Held) else _under(name, said))] = sample
        for path, sample in side.leaves:
            samples[Item(one.section, f"{name}.{path}" if name and path[:1] not in ("[", "{") else f"{name}{path}")] = (
                sample
            )
        if one.section == "optimizer":
            members = [[self._said(where, True) for where in group] for group in side.groups]
            described[name] = {"class": one.note["class"] if canonical else None, "groups": members}
            for group, key, sample in side.hyper:
                samples[Item("hyper", "", key, name, group)] = sample
            for where, key, sample in side.state:
                if (said := self._said(where, True)) is not None:
                    samples[Item("state", said, key, name)] = sample

    def _said(self, where: Where, canonical: bool) -> str | None:
        """The name of a place; with `canonical` the first one of a tensor that has several."""
        if not isinstance(where, Held):
            return where
        module = where.module()
        name = self._modules.get(id(module)) if module is not None else None
        if name is None:
            return None
        tensor = _tensor(where) if canonical else None
        first = self._names.name_of(tensor) if tensor is not None else None
        return first if first is not None else _under(name, where.own)


def _under(module: str, own: str) -> str:
    return f"{module}.{own}" if module else own

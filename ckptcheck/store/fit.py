"""Does a stored training state fit the live objects? Answered by name, before any of them is touched."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ckptcheck.errors import StoreError
from ckptcheck.state.naming import LiveNames
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tensor_bytes import spec_of
from ckptcheck.state.training_state import unnamed
from ckptcheck.store.layout import MODEL
from ckptcheck.store.live import Live
from ckptcheck.store.manifest import Manifest, OptimizerRecord
from ckptcheck.store.optimizers import OptimizerBinding, group_matching, members
from ckptcheck.store.tensors import check_plain

_SHOWN = 3
"""How many names and how many problems one message tells."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Which live tensor each stored one goes into.

    `parameters` and `buffers` are by stored name; `unfilled` are buffers that the live model registered as None
    and that were tensors when the state was saved.
    """

    parameters: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    unfilled: tuple[str, ...]
    optimizers: tuple[OptimizerBinding, ...]


def bind(manifest: Manifest, live: Live, where: str) -> Binding:
    """The binding; StoreError that names the first few differences when the stored state does not fit."""
    parameters = _by_any_name(live.names)
    unfilled = tuple(name for name in manifest.buffers if _is_unfilled(live.names, name))
    problems = [*_model_problems(manifest, live.names, unfilled), *_section_problems(manifest, live)]
    optimizers = []
    if len(manifest.optimizers) != len(live.optimizers):
        problems.append(f"{len(manifest.optimizers)} optimizers were saved, the live run has {len(live.optimizers)}")
    elif not problems:
        for place, (record, optimizer) in enumerate(zip(manifest.optimizers, live.optimizers, strict=True)):
            tensors, found = _tensors_of(record, optimizer, live.names, parameters)
            matching, more = _group_problems(record, optimizer, live.names, tensors)
            problems += [f"optimizer {place}: {problem}" for problem in (*found, *more)]
            optimizers.append(OptimizerBinding(record, optimizer, matching, tensors, f"{where}, optimizer {place}"))
    if problems:
        told = "; ".join(problems[:_SHOWN]) + (f"; and {len(problems) - _SHOWN} more" if problems[_SHOWN:] else "")
        raise StoreError(
            f"{where}: does not fit the live run, nothing was loaded: {told}. Build model, optimizers and the rest as "
            "they were when this was saved"
        )
    return Binding(
        parameters={name: parameters[name] for name in manifest.parameters},
        buffers={name: live.names.buffers[name] for name in manifest.buffers if name not in unfilled},
        unfilled=unfilled,
        optimizers=tuple(optimizers),
    )


def _by_any_name(names: LiveNames) -> dict[str, torch.Tensor]:
    found = dict(names.parameters)
    for name, aliases in names.aliases.items():
        found.update((alias, names.parameters[name]) for alias in aliases)
    return found


def _is_unfilled(names: LiveNames, buffer: str) -> bool:
    module_name, _, own = buffer.rpartition(".")
    module = names.modules.get(module_name)
    return module is not None and own in module._buffers and module._buffers[own] is None


def _model_problems(manifest: Manifest, names: LiveNames, unfilled: Iterable[str]) -> Iterator[str]:
    stored = manifest.payloads[MODEL].tensors if MODEL in manifest.payloads else {}
    live = _by_any_name(names)
    saved = {alias for name, one in manifest.parameters.items() for alias in (name, *one.aliases)}
    yield from _name_problems("parameter", saved, live)
    yield from _name_problems("buffer", set(manifest.buffers) - set(unfilled), names.buffers)
    yield from _tie_problems(manifest, names)
    for name in (*manifest.parameters, *manifest.buffers):
        tensor = live.get(name) if name in manifest.parameters else names.buffers.get(name)
        if tensor is not None:
            check_plain(tensor, name)
            yield from _spec_problems(name, stored[name].spec, tensor)


def _spec_problems(name: str, stored: TensorSpec, tensor: torch.Tensor) -> Iterator[str]:
    if stored != spec_of(tensor):
        yield f"{name!r} was saved as {stored}, the live one is {spec_of(tensor)}"


def _name_problems(kind: str, saved: Iterable[str], live: Iterable[str]) -> Iterator[str]:
    lacking, new = sorted(set(saved) - set(live)), sorted(set(live) - set(saved))
    if lacking:
        yield f"{_count(len(lacking), kind)} saved that the live model lacks ({shown(lacking)})"
    if new:
        yield f"{_count(len(new), kind)} of the live model not saved ({shown(new)})"


def _count(number: int, kind: str) -> str:
    return f"{number} {kind}{'' if number == 1 else 's'}"


def shown(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if listed[_SHOWN:] else ""
    return ", ".join(map(repr, listed[:_SHOWN])) + more


def _tie_problems(manifest: Manifest, names: LiveNames) -> Iterator[str]:
    saved = {frozenset((name, *one.aliases)) for name, one in manifest.parameters.items() if one.aliases}
    live = {frozenset((name, *aliases)) for name, aliases in names.aliases.items() if aliases}
    for tie in sorted(saved - live, key=sorted):
        yield f"{shown(sorted(tie))} were one tied parameter when saved and are not in the live model"
    for tie in sorted(live - saved, key=sorted):
        yield f"{shown(sorted(tie))} are one tied parameter in the live model and were not when saved"


def _section_problems(manifest: Manifest, live: Live) -> Iterator[str]:
    for section in sorted({*manifest.sections, *live.sections}):
        saved, now = manifest.sections.get(section, {}), live.sections.get(section, {})
        for label in saved.keys() - now.keys():
            yield f"{_called(section, label)} was saved and the live run has none"
        for label in now.keys() - saved.keys():
            yield f"the live run has {_called(section, label)} and none was saved"
        if section in ("schedule", "scaler", "ema"):
            for label in saved.keys() & now.keys():
                name = type(now[label]).__name__
                if saved[label].class_name != name:
                    yield f"{_called(section, label)} was a {saved[label].class_name}, the live one is a {name}"


def _called(section: str, label: str) -> str:
    return f"extra {label!r}" if section == "extra" else f"{section} {label}"


def _tensors_of(
    record: OptimizerRecord, optimizer: Any, names: LiveNames, parameters: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """The live tensors by the names that this optimizer's record uses, and the names that have none."""
    slots = {
        unnamed(place, index): tensor
        for place, group in enumerate(getattr(optimizer, "param_groups", ()))
        for index, tensor in enumerate(group["params"])
        if names.name_of(tensor) is None
    }
    known = {**parameters, **slots}
    used = [*(name for group in record.groups or () for name in group.members), *record.state, *record.orphans]
    lacking = sorted({name for name in (*used, *record.unnamed) if name not in known})
    problems = [f"{shown(lacking)} saved that the live run lacks"] if lacking else []
    return {name: known[name] for name in (*used, *record.unnamed) if name in known}, problems


def _group_problems(
    record: OptimizerRecord, optimizer: Any, names: LiveNames, tensors: Mapping[str, torch.Tensor]
) -> tuple[tuple[int, ...], list[str]]:
    """For each live group the stored one, or what is wrong with class and membership."""
    if record.class_name != type(optimizer).__name__:
        return (), [f"saved by {record.class_name}, the live one is {type(optimizer).__name__}"]
    if (record.groups is None) != (not hasattr(optimizer, "param_groups")):
        return (), ["only one of the saved and the live one has param groups"]
    if record.groups is None:
        return (), []
    try:
        live = members(optimizer, names)
    except ValueError as trouble:
        return (), [str(trouble)]
    stored = [[tensors[name] for name in group.members if name in tensors] for group in record.groups]
    matching = group_matching([group.values() for group in live], stored)
    if matching is None:
        return (), [_difference([tuple(group) for group in live], [group.members for group in record.groups])]
    if record.class_name == "LBFGS" and [list(map(id, one.values())) for one in live] != [
        list(map(id, stored[place])) for place in matching
    ]:
        return (), ["LBFGS keeps one flat history in the order of its parameters, and the live order is another"]
    return tuple(matching), []


def _difference(live: list[tuple[str, ...]], stored: list[tuple[str, ...]]) -> str:
    saved, now = {name for group in stored for name in group}, {name for group in live for name in group}
    if saved - now:
        return f"{shown(sorted(saved - now))} was in a param group when saved and is in none now"
    if now - saved:
        return f"{shown(sorted(now - saved))} is in a param group now and was in none when saved"
    for name in sorted(saved):
        was = next(group for group in stored if name in group)
        is_now = next(group for group in live if name in group)
        if set(was) != set(is_now):
            parted = sorted(set(was) ^ set(is_now))
            return f"{name!r} was grouped with other parameters when saved: the groups differ in {shown(parted)}"
    return f"{len(stored)} param groups were saved, the live one has {len(live)}"

"""An optimizer's state by parameter name, out of a live one and back into one.

`Optimizer.load_state_dict` binds by position and casts state to the parameter's dtype. Here the positions are
made from names for the live optimizer, and what was cast is put back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ckptcheck.errors import StoreError
from ckptcheck.state.naming import LiveNames
from ckptcheck.state.tensor_bytes import spec_of
from ckptcheck.state.training_state import unnamed
from ckptcheck.store.decoding import Decoder
from ckptcheck.store.encoding import Encoder
from ckptcheck.store.manifest import GroupRecord, OptimizerRecord
from ckptcheck.store.rollback import Undo

_Members: TypeAlias = Iterable[torch.Tensor]
_GROUP_KEYS = ("params", "param_names")
"""Kept by name elsewhere, so not hyperparameters."""


@dataclass(frozen=True, slots=True)
class OptimizerBinding:
    """A stored optimizer and the live one that it goes into.

    `group_of` has for each live group the position of the stored one with the same members; `tensors` maps the
    stored names of members and orphans to live tensors.
    """

    record: OptimizerRecord
    optimizer: Any
    group_of: tuple[int, ...]
    tensors: Mapping[str, torch.Tensor]
    where: str


def members(optimizer: Any, names: LiveNames) -> list[dict[str, torch.Tensor]]:
    """The members of each group, by parameter name in order; ValueError for one that stands twice in a group."""
    groups = []
    for place, group in enumerate(optimizer.param_groups):
        labelled = {}
        for index, tensor in enumerate(group["params"]):
            labelled[names.name_of(tensor) or unnamed(place, index)] = tensor
        if len(labelled) < len(group["params"]):
            raise ValueError(f"group {place} holds a parameter twice")
        groups.append(labelled)
    return groups


def capture(optimizer: Any, names: LiveNames, encode: Encoder, place: int) -> OptimizerRecord:
    """The optimizer as a record; StoreError for state that cannot be carried. Changes nothing."""
    where = str(place)
    name = type(optimizer).__name__
    if not hasattr(optimizer, "param_groups"):
        rest = encode(optimizer.state_dict(), where)
        return OptimizerRecord(name, None, {}, {}, {}, [], rest)
    try:
        groups = members(optimizer, names)
    except ValueError as trouble:
        raise StoreError(f"optimizer {place}: {trouble}: pass each parameter once") from None
    orphans = _orphans(optimizer, names, place)
    packed = optimizer.state_dict() if not orphans else _pack(optimizer, set(map(id, orphans.values())))
    by_id = {
        key: label
        for group, labels in zip(packed["param_groups"], groups, strict=True)
        for key, label in zip(group["params"], labels, strict=True)
    }
    state, loose = {}, []
    for key, value in packed["state"].items():
        if key in by_id:
            state[by_id[key]] = encode(value, f"{where}/{by_id[key]}")
        else:
            loose.append([encode(key, f"{where}/key"), encode(value, f"{where}/{key}")])
    return OptimizerRecord(
        class_name=name,
        groups=tuple(
            GroupRecord(tuple(labels), encode(_hyperparameters(group), f"{where}/group {number}"))
            for number, (group, labels) in enumerate(zip(packed["param_groups"], groups, strict=True))
        ),
        state=state,
        orphans={label: encode(optimizer.state[one], f"{where}/{label}") for label, one in orphans.items()},
        unnamed={
            label: encode([one.detach(), one.grad, one.requires_grad], f"{where}/{label}")
            for labels in groups
            for label, one in labels.items()
            if names.name_of(one) is None
        },
        loose=loose,
        rest=encode({key: value for key, value in packed.items() if key not in ("state", "param_groups")}, where),
    )


def _hyperparameters(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in _GROUP_KEYS}


def _orphans(optimizer: Any, names: LiveNames, place: int) -> dict[str, torch.Tensor]:
    """Parameters that have state and are in no group: torch's own state_dict raises KeyError for them."""
    held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
    orphans = {}
    for tensor in getattr(optimizer, "state", {}):
        if isinstance(tensor, torch.Tensor) and id(tensor) not in held:
            name = names.name_of(tensor)
            if name is None:
                raise StoreError(
                    f"optimizer {place} keeps state for a tensor of shape {tuple(tensor.shape)} that is neither in "
                    "its groups nor in the model: delete it from optimizer.state"
                )
            orphans[name] = tensor
    return orphans


def _pack(optimizer: Any, left_out: set[int]) -> dict[str, Any]:
    places = {
        id(tensor): place
        for place, tensor in enumerate(one for group in optimizer.param_groups for one in group["params"])
    }
    state = {places.get(id(key), key): value for key, value in optimizer.state.items() if id(key) not in left_out}
    groups = [
        {**group, "params": [places[id(tensor)] for tensor in group["params"]]} for group in optimizer.param_groups
    ]
    return {"state": state, "param_groups": groups}


def load(binding: OptimizerBinding, decode: Decoder, undo: Undo) -> None:
    """Put the stored state into the live optimizer: by name, in the dtypes that it was saved in."""
    record, optimizer, where = binding.record, binding.optimizer, binding.where
    undo.of_optimizer(optimizer)
    rest = decode.mapping_at(record.rest, where)
    if record.groups is None:
        optimizer.load_state_dict(rest)
        return
    values = [decode.mapping_at(record.groups[place].hyperparameters, where) for place in binding.group_of]
    state = {name: decode.mapping_at(node, f"{where}, {name}") for name, node in record.state.items()}
    positions: dict[int, int] = {}
    groups = []
    for live, hyperparameters in zip(optimizer.param_groups, values, strict=True):
        keys = [positions.setdefault(id(tensor), len(positions)) for tensor in live["params"]]
        groups.append({**hyperparameters, "params": keys})
    packed = {positions[id(binding.tensors[name])]: value for name, value in state.items()}
    packed.update((key, value) for key, value in decode.at(record.loose, where))
    live_values = [dict(group) for group in optimizer.param_groups]
    optimizer.load_state_dict({**rest, "state": packed, "param_groups": groups})
    for group, before in zip(optimizer.param_groups, live_values, strict=True):
        _keep_tensor_objects(group, before)
    for name, value in state.items():
        _put_back_what_was_cast(optimizer.state.get(binding.tensors[name]), value)
    for name, node in record.orphans.items():
        optimizer.state[binding.tensors[name]] = _beside(decode.at(node, where), binding.tensors[name])
    _load_unnamed(binding, decode, undo)


def _load_unnamed(binding: OptimizerBinding, decode: Decoder, undo: Undo) -> None:
    for name, node in binding.record.unnamed.items():
        tensor = binding.tensors[name]
        undo.of_parameter(tensor)
        values, gradient, trained = decode.at(node, binding.where)
        if (values.shape, values.dtype) != (tensor.shape, tensor.dtype):
            raise StoreError(
                f"{binding.where}, {name}: was saved as {spec_of(values)}, the live one is {spec_of(tensor)}"
            )
        with torch.no_grad():
            tensor.copy_(values)
        tensor.grad = None if gradient is None else gradient.to(tensor.device)
        tensor.requires_grad_(trained)


def _keep_tensor_objects(group: dict[str, Any], before: Mapping[str, Any]) -> None:
    # A captured CUDA graph reads a tensor lr at its address.
    for key, live in before.items():
        loaded = group.get(key)
        if not isinstance(live, torch.Tensor) or not isinstance(loaded, torch.Tensor):
            continue
        if (live.shape, live.dtype) == (loaded.shape, loaded.dtype):
            with torch.no_grad():
                live.copy_(loaded)
            group[key] = live


def _put_back_what_was_cast(live: Any, stored: Mapping[Any, Any]) -> None:
    for key in stored:
        if isinstance(live, dict) and key in live:
            live[key] = _uncast(live[key], stored[key])


def _uncast(live: Any, stored: Any) -> Any:
    if isinstance(stored, torch.Tensor):
        if not isinstance(live, torch.Tensor):
            return stored
        return live if (live.dtype, live.shape) == (stored.dtype, stored.shape) else stored.to(live.device)
    if isinstance(stored, dict) and isinstance(live, dict):
        _put_back_what_was_cast(live, stored)
        return live
    if type(stored) in (list, tuple) and type(live) is type(stored) and len(live) == len(stored):
        return type(stored)(_uncast(*pair) for pair in zip(live, stored, strict=True))
    return stored


def _beside(value: Any, parameter: torch.Tensor) -> Any:
    """State of an orphan on its parameter's device, where load_state_dict would have put it."""
    if isinstance(value, torch.Tensor):
        return value.to(parameter.device) if value.dim() else value
    return {key: _beside(one, parameter) for key, one in value.items()} if isinstance(value, dict) else value


def group_matching(live: Iterable[_Members], stored: Iterable[_Members]) -> list[int] | None:
    """For each live group the stored one with the same members in any order; None when some group has no match."""
    left = [(sorted(map(id, group)), place) for place, group in enumerate(stored)]
    matching = []
    for group in live:
        wanted = sorted(map(id, group))
        found = next((one for one in left if one[0] == wanted), None)
        if found is None:
            return None
        left.remove(found)
        matching.append(found[1])
    return matching if not left else None

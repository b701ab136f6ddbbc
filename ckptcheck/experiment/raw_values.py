"""Raw values of a checkpoint as live Python values and torch tensors."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from ckptcheck.conventions.groups import is_optimizer
from ckptcheck.conventions.naming import is_index
from ckptcheck.state.raw import Foreign, Raw, RawTensor
from ckptcheck.state.tensor import TensorRef
from ckptcheck.state.training_state import Entry, Optimizer

_MAX_DEPTH: Final = 6


class NotPlainError(ValueError):
    """A value that only its own class could make: it is not tried."""


def tensor_of(ref: TensorRef) -> torch.Tensor:
    """The tensor on the CPU, in memory of its own. NotPlainError for one rank's piece, or a dtype torch lacks."""
    spec = ref.spec
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype) or (isinstance(ref, RawTensor) and ref.shard is not None):
        raise NotPlainError(f"holds a tensor that is no whole dense one ({spec})")
    if not spec.numel:
        return torch.empty(spec.shape, dtype=dtype)
    content = torch.frombuffer(bytearray(ref.fetch()), dtype=torch.uint8)
    return content.view(dtype).reshape(spec.shape)


def to_python(value: Raw) -> Any:
    """A raw value with torch tensors for leaves. NotPlainError for objects of classes that were not imported."""
    if isinstance(value, RawTensor):
        return tensor_of(value)
    if isinstance(value, Foreign):
        raise NotPlainError(f"holds a {value.class_name}, which is not built here")
    if isinstance(value, Mapping):
        return {key: to_python(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return (
            type(value)(to_python(one) for one in value) if type(value) in (list, tuple) else [*map(to_python, value)]
        )
    return value


def optimizer_dict(
    root: Raw, place: int, optimizer: Optimizer, count: int, members: Sequence[Sequence[str | None]] | None
) -> dict[str, Any]:
    """A state_dict for the file's optimizer at `place` of `count`, as torch's `load_state_dict` takes it.

    `members` are the live group members by name, where the file's state shall be bound by name; None binds it by
    position, as the file has it. NotPlainError where the file's form is none that torch loads.
    """
    if members is not None:
        return _by_name(optimizer, members)
    found = [*_optimizers(root, _MAX_DEPTH)]
    if len(found) == count:
        whole: dict[str, Any] = to_python(found[place])
        # Formats that know text only have made text of the indices.
        return {**whole, "state": {_index(key): one for key, one in whole.get("state", {}).items()}}
    return _by_position(optimizer)


def _index(key: Any) -> Any:
    return int(key) if isinstance(key, str) and is_index(key) else key


def _optimizers(value: Raw, depth: int) -> Iterator[Raw]:
    if is_optimizer(value):
        yield value
    elif depth and isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value[:64]:
            yield from _optimizers(one, depth - 1)


def _by_position(optimizer: Optimizer) -> dict[str, Any]:
    order = {name: place for place, name in enumerate(name for group in optimizer.groups for name in group.members)}
    counted = iter(range(len(order)))
    groups = [{**_plain(group.hyperparameters), "params": [next(counted) for _ in group.members]}
              for group in optimizer.groups]  # fmt: skip
    return {"state": {order[name]: _plain(one) for name, one in optimizer.state.items() if name in order},
            "param_groups": groups}  # fmt: skip


def _by_name(optimizer: Optimizer, members: Sequence[Sequence[str | None]]) -> dict[str, Any]:
    groups: list[dict[str, Any]] = []
    state: dict[int, Any] = {}
    count = 0
    for names in members:
        listed = range(count, count + len(names))
        count += len(names)
        own = next(
            (place for name in names if name is not None and (place := optimizer.group_of(name)) is not None), None
        )
        if own is None:
            raise NotPlainError(f"no group of the file has a parameter of the target's group {len(groups)}")
        groups.append({**_plain(optimizer.groups[own].hyperparameters), "params": list(listed)})
        state |= {index: _plain(optimizer.state[name]) for index, name in zip(listed, names, strict=True)
                  if name is not None and optimizer.state.get(name)}  # fmt: skip
    return {"state": state, "param_groups": groups}


def _plain(entries: Mapping[str, Entry]) -> dict[str, Any]:
    """Flat entries as a dict again: "betas[0]" and "betas[1]" are a tuple."""
    found: dict[str, Any] = {}
    for path, entry in entries.items():
        head, bracket, rest = path.partition("[")
        if bracket and rest[:-1].isdecimal():
            found[head] = (*found.get(head, ()), _value(entry, path))
        elif bracket or "." in path or "{" in path:
            raise NotPlainError(f"keeps nested state ({path})")
        else:
            found[path] = _value(entry, path)
    return found


def _value(entry: Entry, path: str) -> Any:
    if entry.ref is not None:
        return tensor_of(entry.ref)
    if not isinstance(entry.value, str):
        return entry.value
    try:
        return ast.literal_eval(entry.value)
    except (ValueError, SyntaxError):
        raise NotPlainError(f"{path} is no plain value") from None

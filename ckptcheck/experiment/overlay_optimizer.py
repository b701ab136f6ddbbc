"""Chosen parts of a kept optimizer on their way into a live one, by parameter name."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ckptcheck.comparison.groups import match_groups
from ckptcheck.errors import StoreError
from ckptcheck.experiment.sections import Overlay
from ckptcheck.state.naming import LiveNames
from ckptcheck.state.training_state import unnamed
from ckptcheck.store.decoding import Decoder
from ckptcheck.store.manifest import OptimizerRecord


class OptimizerOverlay:
    """One kept optimizer over the live one. `tensors` maps every name of a parameter to the live tensor."""

    def __init__(
        self, record: OptimizerRecord, live: Any, names: LiveNames, tensors: Mapping[str, torch.Tensor], where: str
    ) -> None:
        self._record, self._live, self._names, self._where = record, live, names, where
        self._tensors = dict(tensors)
        for place, group in enumerate(getattr(live, "param_groups", ())):
            for index, tensor in enumerate(group["params"]):
                if names.name_of(tensor) is None:
                    self._tensors[unnamed(place, index)] = tensor

    def put(self, overlay: Overlay, place: str, decode: Decoder) -> None:
        """Put back what is chosen; StoreError where the live optimizer has no place for it."""
        if overlay.has("groups", place) and self._record.groups is not None:
            self._groups()
        if overlay.has("rest", place):
            rest = decode.mapping_at(self._record.rest, self._where)
            own = self._live.state_dict() if self._record.groups is not None else {}
            self._live.load_state_dict({**own, **rest})
        if overlay.touches("hyperparameters", place) and self._record.groups is not None:
            self._hyperparameters(overlay, place, decode)
        if overlay.touches("state", place) and self._record.groups is not None:
            self._state(overlay, place, decode)

    def _tensor(self, name: str) -> torch.Tensor:
        if name not in self._tensors:
            raise StoreError(f"{self._where}: the live run has no {name!r} to put it back into")
        return self._tensors[name]

    def _groups(self) -> None:
        """Make each group hold what it held, in its order; state of a tensor that is replaced goes with its slot."""
        stored = [[self._tensor(name) for name in group.members] for group in self._record.groups or ()]
        groups = self._live.param_groups
        if [list(map(id, one["params"])) for one in groups] == [list(map(id, one)) for one in stored]:
            return
        there = {id(tensor) for members in stored for tensor in members}
        state = getattr(self._live, "state", {})
        for group, members in zip(groups, stored, strict=False):
            for old, new in zip(group["params"], members, strict=False):
                if id(old) not in there and self._names.name_of(old) is None and old in state and new not in state:
                    state[new] = state.pop(old)
        while len(groups) < len(stored):
            groups.append(dict(groups[-1]))
        del groups[len(stored) :]
        for group, members, record in zip(groups, stored, self._record.groups or (), strict=True):
            group["params"] = members
            if "param_names" in group:
                group["param_names"] = list(record.members)

    def _hyperparameters(self, overlay: Overlay, place: str, decode: Decoder) -> None:
        stored = self._record.groups or ()
        live = self._live.param_groups
        labels = [tuple(map(self._names.name_of, group["params"])) for group in live]
        left_of = match_groups([one.members for one in stored], labels).left_of
        for number, group in enumerate(live):
            if number not in left_of:
                raise StoreError(f"{self._where}: the live param group {number} has none that was kept to take from")
            kept = decode.mapping_at(stored[left_of[number]].hyperparameters, self._where)
            for key, value in kept.items():
                if overlay.has("hyperparameters", place, str(key)):
                    _assign(group, key, value)

    def _state(self, overlay: Overlay, place: str, decode: Decoder) -> None:
        record, state = self._record, getattr(self._live, "state", None)
        if state is None:
            raise StoreError(f"{self._where}: the live {type(self._live).__name__} has no state to put it back into")
        kept = {**record.state, **record.orphans}
        names = {id(tensor): name for name, tensor in reversed(self._tensors.items())}
        held = {names[id(one)]: one for one in state if isinstance(one, torch.Tensor) and id(one) in names}
        for name in {**kept, **held}:
            values = decode.mapping_at(kept[name], f"{self._where}, {name}") if name in kept else {}
            tensor = held[name] if name in held and name not in kept else self._tensor(name)
            there = state.get(tensor, {})
            for key in {**values, **there}:
                if not overlay.has("state", place, str(key), name):
                    continue
                if key in values:
                    there[key] = _placed(values[key], there.get(key), tensor)
                else:
                    del there[key]
            if there:
                state[tensor] = there
            else:
                state.pop(tensor, None)
        if overlay.has("state", place):
            state.update(decode.at(record.loose, self._where))


def _assign(group: dict[str, Any], key: Any, value: Any) -> None:
    there = group.get(key)
    if isinstance(there, torch.Tensor) and isinstance(value, torch.Tensor) and there.shape == value.shape:
        with torch.no_grad():
            there.copy_(value)  # whoever else reads this rate holds the same tensor
    else:
        group[key] = value


def _placed(value: Any, there: Any, parameter: torch.Tensor) -> Any:
    """The value on the device of what stands there, else of its parameter; a number stays where it was kept."""
    if isinstance(value, torch.Tensor):
        if isinstance(there, torch.Tensor):
            return value.to(there.device)
        return value.to(parameter.device) if value.dim() else value
    if isinstance(value, dict):
        inner: Iterable[tuple[Any, Any]] = value.items()
        return {key: _placed(one, None, parameter) for key, one in inner}
    return value

"""What is recorded: the live objects of a run, read anew at every step, in one shape."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ckptcheck.state.naming import LiveNames, resolve
from ckptcheck.state.training_state import unnamed


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

    def names(self) -> LiveNames:
        """The model's names; call `refresh` when modules or parameters may have been replaced."""
        if self._names is None:
            self._names = resolve(self.model())
        return self._names

    def refresh(self) -> LiveNames:
        """Resolve the names anew."""
        self._names = None
        return self.names()

    def forget(self) -> None:
        """Let go of the model's tensors until names are asked for again."""
        self._names = None

    def slots(self, optimizer: Any) -> Iterator[tuple[int, int, torch.Tensor, str, bool]]:
        """Yield (group, index, tensor, name, held by the model) for every member of an optimizer's groups."""
        names = self.names()
        for group, members in enumerate(optimizer.param_groups):
            for index, tensor in enumerate(members["params"]):
                name = names.name_of(tensor)
                yield group, index, tensor, name if name is not None else unnamed(group, index), name is not None


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
    return {"": objects[0]} if len(objects) == 1 else {f"[{place}]": one for place, one in enumerate(objects)}

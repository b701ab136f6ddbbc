"""Averages of a model that training brings up to date beside it (EMA), told by what they hold and by their class."""

import gc
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ckptcheck.state.naming import LiveNames, resolve
from ckptcheck.trace.script.fields import fields_of, is_setting, weakly

NAME_OF_AVERAGE: Final = re.compile(
    r"EMA(?![a-z])|(?<![A-Za-z])Ema|[a-z]Ema(?![a-z])|Averag(ed|ing)|[a-z]Average|^Average(?!Pool|Meter)"
)
"""Names of classes such as AveragedModel, ModelEmaV2, EMAModel, LitEma, ExponentialMovingAverage."""
_LOOKS: Final = 3
"""How often everything alive is gone through for averages that are no modules: around the first step."""


class Objects:
    """Averages that are no modules: objects of such a name with tensors in lists or dicts. Keeps none alive."""

    def __init__(self) -> None:
        self._known: dict[int, Callable[[], Any]] = {}
        self._kinds: dict[type, bool] = {}
        self._looked = 0

    def all(self, training: Mapping[str, nn.Module]) -> list[dict[str, Any]]:
        """What each of them holds, by the names of the parameters that it averages."""
        if not self._known and self._looked >= _LOOKS:
            return []
        parameters = dict(resolve(dict(training)).parameters)
        if self._looked < _LOOKS:
            self._look(parameters)
        else:
            self._kinds.clear()
        alive = [one for known in self._known.values() if (one := known()) is not None]
        return [tree for one in alive if (tree := _tree(fields_of(one), parameters))]

    def _look(self, parameters: Mapping[str, torch.Tensor]) -> None:
        self._looked += 1
        kinds = self._kinds
        for one in gc.get_objects():
            kind = type(one)
            if kind not in kinds:
                kinds[kind] = is_called_average(kind) and not issubclass(kind, nn.Module | torch.Tensor | type)
            if kinds[kind] and id(one) not in self._known and _tree(fields_of(one), parameters):
                self._known[id(one)] = weakly(one, None) or partial(_same, one)


def _same(one: Any) -> Any:
    return one


def _tree(fields: Mapping[str, Any], parameters: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The averaged tensors of an object by name, and its numbers; empty where it averages none of the parameters."""
    tree: dict[str, Any] = {}
    for value in fields.values():
        tree.update(_named(value, parameters))
    return {**tree, **{key: value for key, value in fields.items() if is_setting(value)}} if tree else {}


def _named(value: Any, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if isinstance(value, Mapping):
        held = {key: one for key, one in value.items() if isinstance(one, torch.Tensor)}
        return held if held and all(_fits(one, parameters.get(key)) for key, one in held.items()) else {}
    if not isinstance(value, list | tuple) or not all(isinstance(one, torch.Tensor) for one in value):
        return {}
    for names in (list(parameters), [name for name, one in parameters.items() if one.requires_grad]):
        if len(names) == len(value) and all(map(_fits, value, (parameters[name] for name in names))):
            return dict(zip(names, value, strict=True))
    return {}


def _fits(tensor: torch.Tensor, parameter: torch.Tensor | None) -> bool:
    return parameter is not None and tensor is not parameter and tensor.shape == parameter.shape


def averaged(module: nn.Module, training: Iterable[nn.Module]) -> dict[str, torch.Tensor]:
    """The tensors of a module that is an average of one that trains, named as there; empty where it is none.

    It is one where it has the parameters of the training one by name and shape, in itself or in what it wraps, and is
    frozen as a whole, or its class says so.
    """
    called_so = is_called_average(type(module))
    for part in (module, *module.__dict__["_modules"].values()):
        names = resolve(part) if part is not None else None
        if names and (called_so or not _requires_grad(names)) and _is_like_any(names, training):
            inside = {id(tensor) for tensor in (*names.parameters.values(), *names.buffers.values())}
            whole = resolve(module)
            more = {key: one for key, one in {**whole.parameters, **whole.buffers}.items() if id(one) not in inside}
            return {**names.parameters, **names.buffers, **more}
    return {}


def is_called_average(kind: type) -> bool:
    """Whether the name of a class says that it averages."""
    name = kind.__name__
    return ("EMA" in name or "Ema" in name or "Avera" in name) and NAME_OF_AVERAGE.search(name) is not None


def _requires_grad(names: LiveNames) -> bool:
    return any(parameter.requires_grad for parameter in names.parameters.values())


def _is_like_any(names: LiveNames, training: Iterable[nn.Module]) -> bool:
    shapes = _shapes(names)
    return bool(shapes) and any(shapes == _shapes(resolve(one)) for one in training)


def _shapes(names: LiveNames) -> list[tuple[str, tuple[int, ...]]]:
    return [
        (name, () if is_lazy(parameter) else tuple(parameter.shape)) for name, parameter in names.parameters.items()
    ]

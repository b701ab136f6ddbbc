"""Averages of a model that training brings up to date beside it (EMA), told by what they hold and by their class."""

import re
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ckptcheck.state.naming import LiveNames, resolve
from ckptcheck.trace.script.fields import fields_of, is_setting, weakly
from ckptcheck.trace.script.living import classes, instances, loaded
from ckptcheck.trace.script.wrapping import tell_after

NAME_OF_AVERAGE: Final = re.compile(
    r"EMA(?![a-z])|(?<![A-Za-z])Ema(?!il)|[a-z]Ema(?![a-z])|Averag(ed|ing)|[a-z]Average|^Average(?!Pool|Meter)"
)
"""Names of classes such as AveragedModel, ModelEmaV2, EMAModel, LitEma, ExponentialMovingAverage."""
_WATCHES: Final = 8
"""How often classes are gone through at most."""
_ASKED: Final = 12
"""How often new classes are looked for where no module has been loaded since; a look costs half a millisecond."""
_OTHERS: Final = frozenset({"tqdm", "email"})
"""Packages whose classes have such names and keep no tensors, and that many scripts load."""


class Objects:
    """Averages that are no modules: objects of such a name with tensors in lists or dicts. Keeps none alive.

    `watch` looks for classes of such names; of these, objects are known from their making on. Those that were there
    before their class was seen are looked for once, among what refers to the class.
    """

    def __init__(self) -> None:
        self._known: dict[int, Callable[[], Any]] = {}
        self._kinds: WeakSet[type] = WeakSet()
        self._late: list[type] = []
        self._loaded = (0, 0)
        self._watched = self._asked = 0
        self._undo: list[Callable[[], None]] = []

    def watch(self, *, late: bool = False) -> None:
        """Look for classes, where there are new ones; `late` says that there may be objects of them already."""
        if self._watched >= _WATCHES or (self._asked >= _ASKED and len(sys.modules) == self._loaded[0]):
            return
        self._asked += 1
        now = loaded()
        if now == self._loaded:
            return
        self._loaded = now
        self._watched += 1
        for kind in classes():
            if kind not in self._kinds and _may_average(kind):
                self._kinds.add(kind)
                self._late += [kind] if late else []
                with suppress(TypeError):  # a class that cannot be changed
                    self._undo.append(tell_after(kind, "__init__", self._made))

    def leave(self) -> None:
        """Watch no more."""
        while self._undo:
            self._undo.pop()()

    def _made(self, one: Any) -> None:
        key = id(one)
        alive = weakly(one, lambda _: self._known.pop(key, None))
        if alive is not None or _holds(fields_of(one)):
            self._known[key] = alive or partial(_same, one)

    def all(self, training: Callable[[], Mapping[str, nn.Module]]) -> list[dict[str, Any]]:
        """What each of them holds, by the names of the parameters that it averages."""
        self.watch(late=True)
        late, self._late = self._late, []
        for one in instances(late):
            self._made(one)
        alive = [one for known in list(self._known.values()) if (one := known()) is not None]
        holding = [fields for one in alive if _holds(fields := fields_of(one))]
        parameters = dict(resolve(dict(training())).parameters) if holding else {}
        return [tree for fields in holding if (tree := _tree(fields, parameters))]


def _may_average(kind: type) -> bool:
    return (
        is_called_average(kind)
        and type(kind) in (type, ABCMeta)
        and not issubclass(kind, nn.Module | torch.Tensor | tuple | str | BaseException)
        and kind.__module__.partition(".")[0] not in _OTHERS
    )


def _holds(fields: Mapping[str, Any]) -> bool:
    """Whether an object has a list or dict that may be one of tensors."""
    for value in fields.values():
        some = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        if any(isinstance(one, torch.Tensor) for one in some):
            return True
    return False


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

"""Averages of a model that training brings up to date beside it (EMA), told by what they hold and by their class."""

import re
from typing import Final

import torch
from torch import nn

from ckptcheck.state.naming import LiveNames, resolve

NAME_OF_AVERAGE: Final = re.compile(r"EMA(?![a-z])|(?<![A-Za-z])Ema|[a-z]Ema(?![a-z])|Averag(ed|ing)|[a-z]Average|^Average(?!Pool)")
"""Names of classes as AveragedModel, ModelEmaV2, EMAModel, LitEma, ExponentialMovingAverage."""


def averaged(module: nn.Module, training: list[nn.Module]) -> dict[str, torch.Tensor]:
    """The tensors of a module that is an average of one that trains, named as there; empty where it is none.

    It is one where it has the parameters of the training one by name and shape, in itself or in what it wraps, and is
    frozen as a whole, or its class says so.
    """
    called_so = _is_called_average(type(module))
    for part in (module, *module.__dict__["_modules"].values()):
        if part is None:
            continue
        names = resolve(part)
        if names.parameters and (called_so or not _requires_grad(names)) and _is_like_any(names, training):
            inside = {id(tensor) for tensor in (*names.parameters.values(), *names.buffers.values())}
            whole = resolve(module)
            more = {key: one for key, one in {**whole.parameters, **whole.buffers}.items() if id(one) not in inside}
            return {**names.parameters, **names.buffers, **more}
    return {}


def _is_called_average(kind: type) -> bool:
    return any(NAME_OF_AVERAGE.search(one.__name__) for one in kind.__mro__)


def _requires_grad(names: LiveNames) -> bool:
    return any(parameter.requires_grad for parameter in names.parameters.values())


def _is_like_any(names: LiveNames, training: list[nn.Module]) -> bool:
    shapes = _shapes(names)
    return any(shapes == _shapes(resolve(one)) for one in training)


def _shapes(names: LiveNames) -> list[tuple[str, torch.Size]]:
    return [(name, parameter.shape) for name, parameter in names.parameters.items()]

"""Optimizers and schedules of torch with hyperparameters drawn among the legal ones."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn, optim
from torch.optim import lr_scheduler as schedules

from tests.check_cases.sweep.draws import Draw

Groups = list[dict[str, Any]]


def _common(draw: Draw, *, fused: bool = False, decay: bool = True) -> dict[str, Any]:
    given: dict[str, Any] = {"maximize": True} if draw.chance("maximize", 0.1) else {}
    how = draw.pick("how", ["default", "foreach", "loop", *(["fused"] if fused else [])])
    given |= {"default": {}, "foreach": {"foreach": True}, "loop": {"foreach": False}, "fused": {"fused": True}}[how]
    if decay and draw.chance("decay", 0.5):
        given["weight_decay"] = 0.01
    return given


def _adams(draw: Draw, kind: Any) -> dict[str, Any]:
    given = _common(draw, fused=True) | {"amsgrad": draw.chance("amsgrad", 0.3)}
    given |= {"betas": draw.pick("betas", [(0.9, 0.999), (0.0, 0.99), (0.95, 0.95), (0.8, 0.9)])}
    if "foreach" not in given and "fused" not in given and draw.chance("tensor_lr", 0.15):
        return given | {"lr": torch.tensor(1e-2), "foreach": False}
    return given


def _sgd(draw: Draw, kind: Any) -> dict[str, Any]:
    momentum = draw.pick("momentum", [0, 0.9])
    nesterov = bool(momentum) and draw.chance("nesterov", 0.4)
    return _common(draw, fused=True) | {"momentum": momentum, "nesterov": nesterov}


def _rmsprop(draw: Draw, kind: Any) -> dict[str, Any]:
    return _common(draw) | {"momentum": draw.pick("momentum", [0, 0.9]), "centered": draw.chance("centered", 0.5)}


def _plain(draw: Draw, kind: Any) -> dict[str, Any]:
    return _common(draw)


def _nadam(draw: Draw, kind: Any) -> dict[str, Any]:
    return _common(draw) | {"decoupled_weight_decay": draw.chance("decoupled", 0.5)}


def _adagrad(draw: Draw, kind: Any) -> dict[str, Any]:
    return _common(draw) | {"initial_accumulator_value": draw.pick("initial", [0, 0.1])}


def _rprop(draw: Draw, kind: Any) -> dict[str, Any]:
    return _common(draw, decay=False)


def _adafactor(draw: Draw, kind: Any) -> dict[str, Any]:
    return {"weight_decay": 0.01} if draw.chance("decay", 0.5) else {}


def _nothing(draw: Draw, kind: Any) -> dict[str, Any]:
    return {}


OPTIMIZERS: dict[Any, Callable[[Draw, Any], dict[str, Any]]] = {
    optim.AdamW: _adams, optim.Adam: _adams, optim.SGD: _sgd, optim.RMSprop: _rmsprop, optim.Adagrad: _adagrad,
    optim.Adadelta: _plain, optim.Adamax: _plain, optim.NAdam: _nadam, optim.RAdam: _nadam, optim.Rprop: _rprop,
    optim.ASGD: _plain, optim.LBFGS: _nothing, optim.Adafactor: _adafactor, optim.Muon: _nothing,
}  # fmt: skip
REAL_ONLY = (optim.Adafactor, optim.Muon, optim.LBFGS)


def optimizers(draw: Draw, model: nn.Module, left_out: set[str]) -> list[optim.Optimizer]:
    """One optimizer over the parameters that are not left out, or two."""
    named = [(name, one) for name, one in model.named_parameters() if name not in left_out]
    sparse = [(name, one) for name, one in named if name.startswith("bag.")]
    if sparse:
        rest = [pair for pair in named if pair not in sparse]
        return [optim.SparseAdam([one for _, one in sparse], lr=1e-2), _one(draw, rest)]
    kind = _kind(draw, named)
    if kind is optim.Muon:
        flat = [pair for pair in named if pair[1].ndim != 2]
        whole = [pair for pair in named if pair[1].ndim == 2]
        return [optim.Muon(_groups(draw, whole), lr=1e-2), *([optim.AdamW(_groups(draw, flat))] if flat else [])]
    if kind is not optim.LBFGS and len(named) > 3 and draw.chance("two_optimizers", 0.15):
        half = len(named) // 2
        return [_of(draw, kind, named[:half]), _one(draw, named[half:])]
    return [_of(draw, kind, named)]


def _kind(draw: Draw, named: list[Any]) -> Any:
    whole = any(one.is_complex() for _, one in named)
    if not any(one.ndim == 2 for _, one in named):
        return draw.pick("optimizer", [optim.AdamW, optim.SGD])
    return draw.pick("optimizer", [one for one in OPTIMIZERS if not (whole and one in REAL_ONLY)])


def _one(draw: Draw, named: list[Any]) -> optim.Optimizer:
    kinds = [one for one in OPTIMIZERS if one not in REAL_ONLY]
    return _of(draw, draw.pick("second", kinds), named)


def _of(draw: Draw, kind: Any, named: list[Any]) -> optim.Optimizer:
    given = OPTIMIZERS[kind](draw, kind)
    if any(one.is_complex() for _, one in named) or draw.said["freezing"] == "thawed":
        given.pop("fused", None)  # which a complex parameter, added later too, cannot have
    groups = [one for _, one in named] if kind is optim.LBFGS else _groups(draw, named)
    lr = given.pop("lr", 1e-2)
    return kind(groups, lr=lr, **given)


def _groups(draw: Draw, named: list[Any]) -> Groups:
    """The parameters in groups of one of the usual kinds, with their names or without."""
    how = draw.pick("groups", ["one", "decay", "decay last", "layers", "each"])
    if how == "one":
        parts = [named]
    elif how in ("decay", "decay last"):
        parts = [[pair for pair in named if pair[1].ndim >= 2], [pair for pair in named if pair[1].ndim < 2]]
        parts = parts[::-1] if how == "decay last" else parts
    elif how == "layers":
        tops = dict.fromkeys(name.partition(".")[0] for name, _ in named)
        parts = [[pair for pair in named if pair[0].partition(".")[0] == top] for top in tops]
    else:
        parts = [[pair] for pair in named]
    with_names = draw.chance("named", 0.5)
    parts = [part for part in parts if part]
    decays = how.startswith("decay") and draw.chance("group_decay", 0.8)
    return [
        {"params": part if with_names else [one for _, one in part],
         **({"weight_decay": 0.1 * (part[0][1].ndim >= 2)} if decays else {})}
        for part in parts
    ]  # fmt: skip


def _cyclic(optimizer: Any) -> Any:
    return schedules.CyclicLR(optimizer, 1e-3, 1e-2, step_size_up=3, cycle_momentum=False)


def _one_cycle(optimizer: Any) -> Any:
    return schedules.OneCycleLR(optimizer, 1e-2, total_steps=100, cycle_momentum=False)


def _sequential(optimizer: Any) -> Any:
    warm = schedules.LinearLR(optimizer, 0.1, total_iters=3)
    return schedules.SequentialLR(optimizer, [warm, schedules.CosineAnnealingLR(optimizer, 30)], [3])


def _three(optimizer: Any) -> Any:
    parts = [schedules.ConstantLR(optimizer, 0.5, 2), schedules.LinearLR(optimizer, 0.5, total_iters=3),
             schedules.ExponentialLR(optimizer, 0.9)]  # fmt: skip
    return schedules.SequentialLR(optimizer, parts, [2, 5])


def _chained(optimizer: Any) -> Any:
    return schedules.ChainedScheduler(
        [schedules.LinearLR(optimizer, 0.1, total_iters=3), schedules.ExponentialLR(optimizer, 0.95)]
    )


def _warmup(optimizer: Any) -> Any:
    return schedules.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))


class Inverse(schedules.LRScheduler):
    """A schedule of a user's own."""

    def get_lr(self) -> list[float]:
        return [base / (1 + self.last_epoch) ** 0.5 for base in self.base_lrs]


def _own(optimizer: Any) -> Any:
    return Inverse(optimizer)


SCHEDULES: tuple[Callable[[Any], Any], ...] = (
    _cyclic, _one_cycle, _sequential, _three, _chained, _warmup, _own,
    lambda one: schedules.MultiplicativeLR(one, lambda step: 0.95),
    lambda one: schedules.StepLR(one, 3),
    lambda one: schedules.MultiStepLR(one, [2, 5, 5], 0.5),
    lambda one: schedules.ConstantLR(one, 0.5, 4),
    lambda one: schedules.LinearLR(one, 0.1, total_iters=6),
    lambda one: schedules.ExponentialLR(one, 0.9),
    lambda one: schedules.PolynomialLR(one, 30, 2),
    lambda one: schedules.PolynomialLR(one, 5),
    lambda one: schedules.CosineAnnealingLR(one, 30),
    lambda one: schedules.CosineAnnealingLR(one, 4, 1e-4),
    lambda one: schedules.CosineAnnealingWarmRestarts(one, 3, 2),
    lambda one: schedules.ReduceLROnPlateau(one, patience=1),
    lambda one: optim.swa_utils.SWALR(one, 1e-3, anneal_epochs=4),
)  # fmt: skip
"""Makers of a schedule over one optimizer; the last ones are told by their place here."""


def schedule(draw: Draw) -> Callable[[Any], Any] | None:
    """A maker of a schedule, or none."""
    if draw.chance("no_schedule", 0.3):
        return None
    place = draw.random.randrange(len(SCHEDULES))
    draw.said["schedule"] = str(place)
    return SCHEDULES[place]

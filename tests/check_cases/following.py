"""Cases of pairs: parts that were lost on the way, parts that stood still, and numbers of either side."""

import copy
from typing import Any

import torch
from torch import nn

from tests.check_cases.case import Faulty, Legal
from tests.check_cases.pairs import COSINE
from tests.check_cases.training import ConvNet, decay_groups, train
from tests.check_cases.two import (
    Backbone,
    Saved,
    freeze,
    frozen,
    half_and_half,
    head_steps,
    named,
    parameters,
    state_of,
    two,
)

A, B = "layers.0.weight", "layers.1.weight"


def _without(*keys: str) -> Any:
    def change(left: Saved, right: Saved) -> None:
        for key in keys:
            del right[key]

    return change


def _had_a_scaler(left: Saved, right: Saved) -> None:
    left["scaler"] = {"scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000,
                      "_growth_tracker": 3}  # fmt: skip


def _averages(left: Saved, right: Saved) -> None:
    for side in (left, right):
        side["ema"] = {"decay": 0.9, "shadow": {name: one * 0.9 for name, one in side["model"].items()}}


def _lost_average(left: Saved, right: Saved) -> None:
    _averages(left, right)
    del right["ema"]


def _stale_average(left: Saved, right: Saved) -> None:
    _averages(left, right)
    right["ema"] = copy.deepcopy(left["ema"])


def _average_begins_later(left: Saved, right: Saved) -> None:
    """As torch.optim.swa_utils keeps it before the first update."""
    _stale_average(left, right)
    for side in (left, right):
        shadow = side["ema"].pop("shadow")
        side["ema"] = {f"module.{name}": one for name, one in shadow.items()} | {"n_averaged": torch.tensor(0)}


def _stale_schedule(left: Saved, right: Saved) -> None:
    right["scheduler"] = copy.deepcopy(left["scheduler"])


def _by_the_epoch(left: Saved, right: Saved) -> None:
    """A schedule that is stepped once an epoch, both checkpoints within the second one."""
    for side in (left, right):
        side["scheduler"]["last_epoch"] = 1


def _lost_statistics(left: Saved, right: Saved) -> None:
    for name in ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked"):
        del right["model"][name]


def _statistics_anew(left: Saved, right: Saved) -> None:
    right["model"]["bn.running_mean"].zero_()
    right["model"]["bn.running_var"].fill_(1)
    right["model"]["bn.num_batches_tracked"].zero_()


def _odd(key: str, value: float, name: str = B) -> Any:
    def change(left: Saved, right: Saved) -> None:
        state_of(right, name)[key].view(-1)[1] = value

    return change


def _nan_on_both(left: Saved, right: Saved) -> None:
    for side in (left, right):
        side["model"][A][0, 0] = float("nan")


def _squares_are_zero(left: Saved, right: Saved) -> None:
    state_of(right, B)["exp_avg_sq"].zero_()


def _all_moments_are_zero(left: Saved, right: Saved) -> None:
    for state in right["optimizer"]["state"].values():
        state["exp_avg"].zero_()
        state["exp_avg_sq"].zero_()


def _one_layer_anew(left: Saved, right: Saved) -> None:
    generator = torch.Generator().manual_seed(99)
    right["model"][A] = torch.randn(right["model"][A].shape, generator=generator)


def _zero_weights(left: Saved, right: Saved) -> None:
    right["model"][A].zero_()


def _pruned(left: Saved, right: Saved) -> None:
    for side in (left, right):
        side["model"][A] += 3
    right["model"][A][:2] = 0


def _shape_of_a_place(left: Saved, right: Saved) -> None:
    state = right["optimizer"]["state"][0]
    state["exp_avg"], state["exp_avg_sq"] = state["exp_avg"][:3].clone(), state["exp_avg_sq"][:3].clone()


def _one_fewer(left: Saved, right: Saved) -> None:
    right["optimizer"]["state"].pop(right["optimizer"]["param_groups"][0]["params"].pop())


def _lost_weight(left: Saved, right: Saved) -> None:
    del right["model"]["head.bias"]


def _other_head(left: Saved, right: Saved) -> None:
    """The head is another one, and so is its entry in the optimizer."""
    group = right["optimizer"]["param_groups"][0]
    for name in ("head.weight", "head.bias"):
        right["model"][f"new_{name}"] = right["model"].pop(name)
        group["param_names"][group["param_names"].index(name)] = f"new_{name}"


def _exchanged_names(left: Saved, right: Saved) -> None:
    names = right["optimizer"]["param_groups"][0]["param_names"]
    at, to = names.index(A), names.index(B)
    names[at], names[to] = names[to], names[at]


def _far_apart(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """All parameters, one of which gets much larger gradients, so that its moments are larger."""
    model.layers[0].weight.register_hook(lambda gradient: gradient * 50)
    return named(model)


def _turned(left: Saved, right: Saved) -> None:
    right["optimizer"]["param_groups"].reverse()


def _zero_gradients(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The backbone is frozen and its gradients are zero, which momentum and decay read."""
    frozen("zero")(model, optimizer)


def _gradients_are_none(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    freeze(model)
    model.backbone.eval()
    head_steps(model, optimizer)


def _rounded_moments(left: Saved, right: Saved) -> None:
    for index, state in left["optimizer"]["state"].items():
        kept = right["optimizer"]["state"][index]
        for key in ("exp_avg", "exp_avg_sq"):
            kept[key] = state[key].bfloat16().float()


def _twice_a_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Six updates in three steps, as a ramp of critic updates or of accumulation makes."""
    train(model, optimizer, 6, seed=1)


def _sums_of_schedule_free(left: Saved, right: Saved) -> None:
    for number, side in enumerate((left, right)):
        for group in side["optimizer"]["param_groups"]:
            group |= {"k": 3 + 3 * number, "weight_sum": 1e-6 * (1 + number), "lr_max": 1e-2, "train_mode": True}


def _tensor_rate(left: Saved, right: Saved) -> None:
    for side in (left, right):
        side["optimizer"]["param_groups"][0]["lr"] = torch.tensor(0.01)


NO_GRAD = {"freeze": {"backbone.0.*": "no-grad"}}
MOMENTUM: dict[str, Any] = {"optimizer": torch.optim.SGD, "momentum": 0.9}
NO_DECAY: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.0}

FAULTY: tuple[Faulty, ...] = (
    Faulty("the later of two checkpoints has no optimizer, and generators", two(_without("optimizer")), "CK201",
           mechanism="opt_absent"),
    Faulty("the later of two checkpoints has weights and a step alone", two(_without("optimizer", "rng")), "CK201",
           severity="warning"),
    Faulty("the later of two checkpoints lacks the schedule", two(_without("scheduler"), **COSINE), "CK204",
           severity="warning"),
    Faulty("the later of two checkpoints lacks the generators", two(_without("rng")), "CK205", severity="warning"),
    Faulty("the later of two checkpoints lacks the gradient scaler", two(_had_a_scaler), "CK206", severity="warning"),
    Faulty("the later of two checkpoints lacks the average", two(_lost_average), "CK208", severity="warning"),
    Faulty("the average is that of the earlier checkpoint", two(_stale_average), "CK208", severity="warning"),
    Faulty("the schedule is that of the earlier checkpoint", two(_stale_schedule, **COSINE), "CK602",
           severity="warning"),
    Faulty("the later of two checkpoints lacks running statistics", two(_lost_statistics, model=ConvNet), "CK309",
           "bn.running_var"),
    Faulty("running statistics began anew between two checkpoints", two(_statistics_anew, model=ConvNet), "CK309",
           "bn.num_batches_tracked", severity="warning"),
    Faulty("a moment of the later checkpoint is NaN", two(_odd("exp_avg", float("nan"))), "CK501", B,
           options={"require": ["CK501"]}),
    Faulty("a weight of both checkpoints is NaN", two(_nan_on_both), "CK501", A),
    Faulty("a second moment of the later checkpoint is below zero", two(_odd("exp_avg_sq", -1e-9)), "CK502", B),
    Faulty("second moments of the later checkpoint became zero", two(_squares_are_zero), "CK503", B),
    Faulty("all moments of the later checkpoint are zero", two(_all_moments_are_zero), "CK506", severity="warning"),
    Faulty("one layer of the later checkpoint was made anew", two(_one_layer_anew, **NO_DECAY), "CK309", A,
           mechanism="not_loaded"),
    Faulty("one layer of the later checkpoint was made anew, under decay", two(_one_layer_anew, lr=1e-3), "CK309", A),
    Faulty("one layer of the later checkpoint is zero", two(_zero_weights, **NO_DECAY), "CK309", A),
    Faulty("moments at a place without a name fit its parameter no more",
           two(_shape_of_a_place, groups=parameters), "CK304", A),
    Faulty("an optimizer without names steps one parameter less", two(_one_fewer, groups=parameters), "CK303",
           severity="warning", mechanism="uncovered"),
    Faulty("the later model lacks a parameter that is still stepped", two(_lost_weight), "CK309", "head.bias"),
    Faulty("the later model lacks a parameter, and the optimizer has no names",
           two(_lost_weight, groups=parameters), "CK309", "head.bias"),
    Faulty("the head is another one, in the optimizer too", two(_other_head), "CK309", "head.weight",
           severity="warning"),
    Faulty("names were exchanged and the state was not", two(_exchanged_names, groups=_far_apart), "CK302", A),
    Faulty("named groups changed places", two(_turned, groups=half_and_half), "CK301"),
    Faulty("momentum read zero gradients of a frozen backbone",
           two(model=Backbone, between=_zero_gradients, **MOMENTUM), "CK403", "backbone.0.weight", options=NO_GRAD),
    Faulty("the moments of the later checkpoint are the earlier ones through bf16", two(_rounded_moments), "CK504",
           severity="warning", mechanism="dtype_down"),
)  # fmt: skip

LEGAL: tuple[Legal, ...] = (
    Legal("weights alone after a checkpoint of the training", two(_without("optimizer", "rng", "step")),
          silent=("CK201", "CK205")),
    Legal("averages that move", two(_averages), silent=("CK208", "CK309")),
    Legal("an average that begins after both checkpoints", two(_average_begins_later), silent=("CK208",)),
    Legal("a schedule that goes by the epoch", two(_by_the_epoch, **COSINE), silent=("CK602",)),
    Legal("running statistics that go on", two(model=ConvNet), silent=("CK309",), options={"require": ["CK501"]}),
    Legal("a layer that was pruned between two checkpoints", two(_pruned, **NO_DECAY), silent=("CK309",)),
    Legal("one layer that was made anew under SGD", two(_one_layer_anew, **MOMENTUM), silent=("CK309",)),
    Legal("two checkpoints of groups without names", two(groups=decay_groups), silent=("CK303", "CK304", "CK309")),
    Legal("a frozen backbone without gradients under momentum",
          two(model=Backbone, between=_gradients_are_none, **MOMENTUM), silent=("CK403",), options=NO_GRAD),
    Legal("more updates in each step than before", two(between=_twice_a_step)),
    Legal("sums that a schedule-free optimizer keeps in its groups", two(_sums_of_schedule_free), silent=("CK306",)),
    Legal("a rate that is a tensor in both checkpoints", two(_tensor_rate), silent=("CK306", "CK307")),
)  # fmt: skip

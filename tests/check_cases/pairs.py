"""Cases of pairs: an earlier and a later checkpoint of one training."""

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from tests.check_cases.case import Faulty, Legal
from tests.check_cases.training import ConvNet, Mlp, Tied, decay_groups, train
from tests.check_cases.two import Saved, half_and_half, parameters, state_of, two
from tests.samples import CHECKPOINTS

A, B = "layers.0.weight", "layers.1.weight"


def _no_state(left: Saved, right: Saved) -> None:
    right["optimizer"]["state"] = {}


def _lacks_a_moment(left: Saved, right: Saved) -> None:
    state_of(right, B).clear()


def _lacks_a_key(left: Saved, right: Saved) -> None:
    del state_of(right, B)["exp_avg_sq"]


def _lacks_a_key_everywhere(left: Saved, right: Saved) -> None:
    for state in right["optimizer"]["state"].values():
        del state["exp_avg_sq"]


def _another_class(left: Saved, right: Saved) -> None:
    model = Mlp()
    optimizer = torch.optim.SGD(list(model.named_parameters()), lr=0.1, momentum=0.9)
    train(model, optimizer, 1)
    right["optimizer"] = optimizer.state_dict()


def _second_optimizer(left: Saved, right: Saved) -> None:
    for side in (left, right):
        side["optimizers"] = [side.pop("optimizer")]
    left["optimizers"].append(copy.deepcopy(left["optimizers"][0]))


def _move(right: Saved, name: str, back: str) -> None:
    """Let two parameters of one shape change groups, their state with them."""
    one, other = right["optimizer"]["param_groups"]
    at, to = one["param_names"].index(name), other["param_names"].index(back)
    for key in ("param_names", "params"):
        one[key][at], other[key][to] = other[key][to], one[key][at]


def _regrouped(left: Saved, right: Saved) -> None:
    _move(right, A, B)


def _unnamed_groups_of_other_sizes(left: Saved, right: Saved) -> None:
    one, other = right["optimizer"]["param_groups"]
    other["params"].append(one["params"].pop())


def _swapped_state(left: Saved, right: Saved) -> None:
    right["optimizer"] = copy.deepcopy(left["optimizer"])
    state = right["optimizer"]["state"]
    state[0], state[2] = state[2], state[0]


def _other_order(left: Saved, right: Saved) -> None:
    """The names and their state in another order: what a set of parameters gives in another process."""
    group = right["optimizer"]["param_groups"][0]
    order = [2, 1, 0, *range(3, len(group["params"]))]
    state = right["optimizer"]["state"]
    right["optimizer"]["state"] = {place: state[index] for place, index in enumerate(order)}
    group["param_names"] = [group["param_names"][index] for index in order]


def _left_out(left: Saved, right: Saved) -> None:
    group = right["optimizer"]["param_groups"][0]
    group["params"].pop()
    group["param_names"].pop()
    right["optimizer"]["state"].popitem()


def _state_of_another_shape(left: Saved, right: Saved) -> None:
    state = state_of(right, A)
    state["exp_avg"] = state["exp_avg"][:3].clone()


def _decay(left: Saved, right: Saved) -> None:
    right["optimizer"]["param_groups"][0]["weight_decay"] = 0.5


def _betas(left: Saved, right: Saved) -> None:
    right["optimizer"]["param_groups"][0]["betas"] = (0.8, 0.999)


def _stale(left: Saved, right: Saved) -> None:
    right["model"] = copy.deepcopy(left["model"])


def _one_layer_is_stale(left: Saved, right: Saved) -> None:
    right["model"][B] = left["model"][B].clone()


def _never_loaded(left: Saved, right: Saved) -> None:
    torch.manual_seed(99)
    right["model"] = Mlp().state_dict()


def _prefixed(left: Saved, right: Saved) -> None:
    right["model"] = {f"net.{name}": one for name, one in right["model"].items()}


def _prefix_gone(left: Saved, right: Saved) -> None:
    left["model"] = {f"encoder.{name}": one for name, one in left["model"].items()}


def _lost_name(left: Saved, right: Saved) -> None:
    right["model"]["top.weight"] = right["model"].pop("head.weight")


def _untied(left: Saved, right: Saved) -> None:
    right["model"]["head.weight"] = right["model"]["head.weight"] + 1


def _half_moments(left: Saved, right: Saved) -> None:
    for state in right["optimizer"]["state"].values():
        state["exp_avg_sq"] = state["exp_avg_sq"].bfloat16()


def _rounded_weights(left: Saved, right: Saved) -> None:
    right["model"] = {name: one.bfloat16().float() for name, one in left["model"].items()}
    right["optimizer"] = copy.deepcopy(left["optimizer"])
    right["step"] = 3


def _started_anew(left: Saved, right: Saved) -> None:
    for state in right["optimizer"]["state"].values():
        state["step"] -= 5


def _started_anew_and_gone_on(left: Saved, right: Saved) -> None:
    right["step"] = 9  # counters say 6: those of step 3 and on are lost


def _step_back(left: Saved, right: Saved) -> None:
    right["step"] = 1


def _one_counter_jumps(left: Saved, right: Saved) -> None:
    state_of(right, A)["step"] += 9


def _late_group(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Thaw the head in a group of its own, as gradual unfreezing does."""
    optimizer.add_param_group({"params": [("head.weight", model.head.weight), ("head.bias", model.head.bias)]})
    train(model, optimizer, 3, seed=1)


def _without_head(model: nn.Module) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in model.named_parameters() if not name.startswith("head")]


FAULTY: tuple[Faulty, ...] = (
    Faulty("the later of two checkpoints has no optimizer state", two(_no_state), "CK201", A, mechanism="opt_absent"),
    Faulty("the later of two checkpoints lacks the moments of a parameter", two(_lacks_a_moment), "CK202", B),
    Faulty("the later of two checkpoints lacks a key of a parameter", two(_lacks_a_key), "CK203", B),
    Faulty("the later of two checkpoints lacks a key of all parameters", two(_lacks_a_key_everywhere), "CK203", A),
    Faulty("the later of two checkpoints has the state of SGD and not of AdamW", two(_another_class), "CK203", A,
           mechanism="cls"),
    Faulty("the later of two checkpoints lacks the second optimizer", two(_second_optimizer), "CK201"),
    Faulty("two parameters of one shape changed groups between two checkpoints",
           two(_regrouped, groups=half_and_half), "CK301", A, mechanism="group_silent"),
    Faulty("a group without names grew at the cost of the other between two checkpoints",
           two(_unnamed_groups_of_other_sizes, groups=decay_groups), "CK301", mechanism="group"),
    Faulty("two parameters of one shape have each other's moments in the later checkpoint", two(_swapped_state),
           "CK302", B, mechanism="order"),
    Faulty("two parameters have each other's moments, and the groups no names",
           two(_swapped_state, groups=parameters), "CK302", severity="warning"),
    Faulty("the later checkpoint lists its parameters in another order", two(_other_order), "CK302",
           severity="warning", mechanism="set_order"),
    Faulty("a parameter of the left optimizer is in no group of the right one", two(_left_out), "CK303", "head.bias",
           mechanism="uncovered"),
    Faulty("the moments of a parameter changed shape between two checkpoints", two(_state_of_another_shape), "CK304",
           A),
    Faulty("the weight decay changed between two checkpoints", two(_decay), "CK306", severity="warning",
           mechanism="hyper"),
    Faulty("the betas changed between two checkpoints", two(_betas), "CK306", severity="warning"),
    Faulty("no weight moved although gradients came in", two(_stale), "CK307", A, mechanism="stale_ref"),
    Faulty("one layer did not move although gradients came in", two(_one_layer_is_stale), "CK307", B,
           mechanism="stale_ref"),
    Faulty("no weight moved although gradients came in, under SGD with momentum",
           two(_stale, optimizer=torch.optim.SGD, momentum=0.9), "CK307", A, mechanism="stale_ref"),
    Faulty("groups without names cannot be held against each other",
           two(groups=parameters), "CK308", severity="info"),
    Faulty("the weights of the later checkpoint were made anew", two(_never_loaded), "CK309", A,
           mechanism="not_loaded"),
    Faulty("a parameter has another name in the later checkpoint", two(_lost_name), "CK309", "head.weight"),
    Faulty("the names of the later checkpoint have a prefix", two(_prefixed), "CK310", A, mechanism="prefix"),
    Faulty("the names of the earlier checkpoint have a prefix", two(_prefix_gone), "CK310", mechanism="prefix"),
    Faulty("tied weights are two in the later checkpoint", two(_untied, model=Tied), "CK311", "embedding.weight",
           mechanism="tied"),
    Faulty("the second moments of the later checkpoint are bf16", two(_half_moments), "CK504", severity="warning",
           mechanism="dtype_down"),
    Faulty("the weights of the later checkpoint went through bf16", two(_rounded_weights), "CK504",
           severity="warning", mechanism="dtype_down"),
    Faulty("all update counters went back between two checkpoints", two(_started_anew), "CK505", A),
    Faulty("the optimizer started anew at the left checkpoint and went on", two(_started_anew_and_gone_on), "CK505"),
    Faulty("the recorded step went back while the counters rose", two(_step_back), "CK505"),
    Faulty("one counter rose by more than the steps between", two(_one_counter_jumps), "CK505", A,
           mechanism="step_desync"),
)  # fmt: skip


def _as_release(half: bool) -> Any:
    def make(folder: Path) -> tuple[Path, Path]:
        left, right = two()(folder)
        weights = torch.load(right, weights_only=True)["model"]
        save_file({name: one.bfloat16() if half else one for name, one in weights.items()}, folder / "m.safetensors")
        return left, folder / "m.safetensors"

    return make


def _tied_release(folder: Path) -> tuple[Path, Path]:
    left, right = two(model=Tied)(folder)
    weights = torch.load(right, weights_only=True)["model"]
    del weights["head.weight"]  # as save_model of safetensors does
    save_file(weights, folder / "m.safetensors")
    return left, folder / "m.safetensors"


def _wrapped(left: Saved, right: Saved) -> None:
    left["model"] = {f"_orig_mod.{name}": one for name, one in left["model"].items()}
    right["model"] = {f"module.{name}": one for name, one in right["model"].items()}


def _horizon(left: Saved, right: Saved) -> None:
    right["scheduler"]["T_max"] = 1000


def _other_kernel(left: Saved, right: Saved) -> None:
    for group in right["optimizer"]["param_groups"]:
        group |= {"foreach": True, "fused": None}


def _lagging(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.layers[0].requires_grad_(False)
    train(model, optimizer, 3, seed=1)


def _rate_of_zero(left: Saved, right: Saved) -> None:
    _stale(left, right)
    for side in (left, right):
        side["optimizer"]["param_groups"][0]["lr"] = 0.0


def _kept(name: str) -> Any:
    def make(folder: Path) -> tuple[Path, Path]:
        root = CHECKPOINTS / name
        return root / "checkpoint-2", root / "checkpoint-4"

    return make


def _same(folder: Path) -> tuple[Path, Path]:
    left, _ = two()(folder)
    return left, left


COSINE = {"schedule": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)}
ONE_CYCLE = {"schedule": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)}

LEGAL: tuple[Legal, ...] = (
    Legal("two checkpoints of one run, named", two(), silent=("CK301", "CK302", "CK306", "CK307", "CK309", "CK405")),
    Legal("two checkpoints of one run, with groups by decay", two(groups=decay_groups), silent=("CK301", "CK302")),
    Legal("a checkpoint and itself", _same, silent=("CK307", "CK505")),
    Legal("two checkpoints of SGD without momentum", two(optimizer=torch.optim.SGD), silent=("CK201", "CK307")),
    Legal("two checkpoints of SGD with momentum", two(optimizer=torch.optim.SGD, momentum=0.9), silent=("CK307",)),
    Legal("two checkpoints of a net with batch norm", two(model=ConvNet), silent=("CK404", "CK307")),
    Legal("two checkpoints of tied weights", two(model=Tied), silent=("CK311", "CK309")),
    Legal("a later release in safetensors", _as_release(half=False), silent=("CK309", "CK201")),
    Legal("a later release in bf16", _as_release(half=True), silent=("CK504", "CK309")),
    Legal("a later release without the tied name", _tied_release, silent=("CK311", "CK309")),
    Legal("two checkpoints under two wrappers", two(_wrapped), silent=("CK310", "CK309")),
    Legal("two checkpoints of a run with a schedule", two(**COSINE), silent=("CK306", "CK309")),
    Legal("two checkpoints of a run that cycles its momentum", two(**ONE_CYCLE), silent=("CK309",)),
    Legal("a longer horizon in the later checkpoint", two(_horizon, **COSINE)),
    Legal("another kernel in the later checkpoint", two(_other_kernel), silent=("CK306",)),
    Legal("a layer that was frozen between two checkpoints", two(between=_lagging), silent=("CK505", "CK307")),
    Legal("a group that was added between two checkpoints", two(groups=_without_head, between=_late_group),
          silent=("CK301", "CK303", "CK505")),
    Legal("a rate of zero between two checkpoints", two(_rate_of_zero), silent=("CK307",)),
    Legal("two checkpoints of HF Trainer", _kept("04_hf_trainer"), silent=("CK306", "CK505")),
)  # fmt: skip

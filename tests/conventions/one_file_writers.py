"""What writers of one file save, key by key as their own code does, of real trainings a few steps long."""

import argparse
import copy
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.check_cases.training import ConvNet, Mlp, decay_groups, train

STEPS = 3
Root = dict[str, Any]


class Clip(nn.Module):
    """Two encoders and a temperature, as every model of open_clip has: visual, text, ln, logit_scale."""

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(2.6))
        self.visual = nn.Linear(6, 4)
        self.text = nn.Linear(6, 5)
        self.ln = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logit_scale * (self.ln(self.visual(x)).sum() + self.text(x).sum())


def once(make: Callable[[], Root]) -> Callable[[], Root]:
    """Trains once and gives a copy each time."""
    root = functools.cache(make)
    return functools.wraps(make)(lambda: copy.deepcopy(root()))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any = None) -> nn.Module:
    """Take `STEPS` steps; returns a model of averaged weights."""
    average = copy.deepcopy(model)
    train(model, optimizer, STEPS, scheduler=scheduler)
    with torch.no_grad():
        for old, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
            old.copy_(old * 0.5 + new * 0.5 if old.is_floating_point() else new)
    return average


def scaler() -> Root:
    return torch.amp.GradScaler("cpu").state_dict()


@once
def nanogpt() -> Root:
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(decay_groups(model), lr=0.01, betas=(0.9, 0.95))
    trained(model, optimizer)
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "model_args": {"n_layer": 1, "n_head": 1, "n_embd": 6, "block_size": 5, "bias": True, "vocab_size": 3},
        "iter_num": STEPS, "best_val_loss": torch.tensor(1.5),
        "config": {"out_dir": "out", "max_iters": 10, "iter": 99},
    }  # fmt: skip


@once
def timm() -> Root:
    torch.manual_seed(1)
    model = ConvNet()
    groups = decay_groups(model)[::-1]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    average = trained(model, optimizer)
    return {
        "epoch": 1, "arch": "resnet50", "optimizer": optimizer.state_dict(), "version": 2,
        "args": argparse.Namespace(model="resnet50", lr=0.01, epochs=3), "amp_scaler": scaler(),
        "state_dict": model.state_dict(), "state_dict_ema": average.state_dict(), "metric": 71.5,
        "saver": {"checkpoint_files": [("checkpoint-0.pth.tar", 70.0)], "best_epoch": 0, "best_metric": 70.0,
                  "pending": (1, 71.5)},
    }  # fmt: skip


@once
def open_clip() -> Root:
    torch.manual_seed(2)
    model = Clip()
    gains = [one for name, one in model.named_parameters() if one.ndim < 2]
    rest = [one for one in model.parameters() if one.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": gains, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.2}])
    trained(model, optimizer)
    weights = OrderedDict((f"module.{name}", one) for name, one in model.state_dict().items())
    return {"epoch": 2, "name": "tiny", "state_dict": weights, "optimizer": optimizer.state_dict(), "scaler": scaler()}


@once
def fairseq() -> Root:
    """Its own Adam counts steps in Python's integers."""
    torch.manual_seed(3)
    model = Mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    average = trained(model, optimizer)
    state = optimizer.state_dict()
    for one in state["state"].values():
        one["step"] = int(one["step"])
    entry = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    return {
        "args": None, "cfg": {"_name": None, "common": {"seed": 1, "fp16": False}}, "model": model.state_dict(),
        "criterion": None,
        "optimizer_history": [
            {**entry, "lr_scheduler_state": {"best": 9.5}, "num_updates": 1},
            {**entry, "lr_scheduler_state": {"best": 4.5}, "num_updates": STEPS},
        ],
        "task_state": {},
        "extra_state": {
            "metrics": [(0, "train_wall", "StopwatchMeter", {"sum": 0.5, "n": 2, "round": 0})],
            "previous_training_time": 1.5,
            "train_iterator": {"version": 2, "epoch": 2, "iterations_in_epoch": 1, "shuffle": True},
            "val_loss": 4.5, "best": 4.5, "ema": average.state_dict(),
            "ema_fp32_params": {name: one.float() for name, one in average.state_dict().items()},
        },
        "last_optimizer_state": state,
    }  # fmt: skip


def fairseq_fp16() -> Root:
    """Mixed precision: the optimizer has one flat copy of all parameters."""
    root = fairseq()
    flat = nn.Parameter(torch.cat([one.reshape(-1) for one in root["model"].values()]))
    optimizer = torch.optim.Adam([flat], lr=0.01)
    flat.grad = torch.ones_like(flat)
    optimizer.step()
    root["model"] = {name: one.half() for name, one in root["model"].items()}
    root["last_optimizer_state"] = {**optimizer.state_dict(), "loss_scale": 64.0}
    del root["extra_state"]["ema_fp32_params"]
    return root


def fairseq_criterion() -> Root:
    """A criterion with parameters of its own."""
    root = fairseq()
    root["criterion"] = nn.Linear(2, 2).state_dict()
    return root


@once
def ultralytics() -> Root:
    torch.manual_seed(4)
    model = ConvNet()
    weights = [model.conv.weight, model.head.weight]
    gains, biases = [model.bn.weight], [model.conv.bias, model.bn.bias, model.head.bias]
    groups = [
        {"params": weights, "weight_decay": 5e-4, "param_group": "weight"},
        {"params": gains, "weight_decay": 0.0, "param_group": "bn"},
        {"params": biases, "weight_decay": 0.0, "param_group": "bias"},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9, nesterov=True)
    average = trained(model, optimizer)
    state = copy.deepcopy(optimizer.state_dict())
    for one in state["state"].values():
        one["momentum_buffer"] = one["momentum_buffer"].half()
    return {
        "epoch": 1, "best_fitness": 0.5, "stopper": {"best_fitness": 0.5, "best_epoch": 1}, "model": None,
        "ema": average.half(), "updates": STEPS, "modelopt": None, "optimizer": state, "scaler": scaler(),
        "train_args": {"model": "yolo11n.pt", "epochs": 3, "resume": None}, "train_metrics": {"fitness": 0.5},
        "train_results": {"epoch": [1, 2], "time": [0.5, 0.7]}, "date": "2026-01-01T00:00:00", "version": "8.4.190",
        "git": {"root": "None", "branch": None, "commit": None, "message": None, "origin": None},
        "license": "AGPL-3.0 (https://ultralytics.com/license)", "docs": "https://docs.ultralytics.com",
    }  # fmt: skip


def ultralytics_finished() -> Root:
    """What `strip_optimizer` leaves."""
    root = ultralytics()
    root["model"] = root["ema"].requires_grad_(False)
    root |= dict.fromkeys(("optimizer", "best_fitness", "stopper", "ema", "updates", "scaler"))
    return {**root, "epoch": -1}


def yolov5() -> Root:
    """Both the model and its average are whole modules."""
    root = ultralytics()
    kept = ("epoch", "best_fitness", "ema", "updates", "optimizer", "git", "date")
    return {**{key: root[key] for key in kept}, "model": ConvNet().half(), "opt": {"epochs": 3, "weights": "a.pt"}}


def _schedules(optimizer: torch.optim.Optimizer) -> list[Root]:
    base = [group["lr"] for group in optimizer.param_groups]
    shared = {"param_name": "lr", "base_values": base, "verbose": False, "_last_value": base}
    return [
        {"start_factor": 0.1, "end_factor": 1.0, "total_iters": 2, "begin": 0, "end": 3, "by_epoch": False,
         "last_step": STEPS, "_global_step": STEPS, **shared},
        {"step_size": 1, "gamma": 0.1, "begin": 0, "end": 2, "by_epoch": True, "last_step": 1, "_global_step": 1,
         **shared},
    ]  # fmt: skip


@once
def mmengine() -> Root:
    torch.manual_seed(5)
    model = ConvNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    trained(model, optimizer)
    runtime = {"seed": 7, "epoch": 0, "iter": STEPS - 1, "max_iters": 6, "last_ckpt": "/runs/iter_3.pth"}
    return {
        "meta": {"epoch": 0, "iter": STEPS, "cfg": "lr = 0.01\n", "seed": 7, "experiment_name": "tiny",
                 "time": "20260101_000000", "mmengine_version": "0.10.7", "dataset_meta": {"classes": ("a", "b")}},
        "state_dict": model.state_dict(),
        "message_hub": {"log_scalars": {}, "runtime_info": runtime, "resumed_keys": {"train/lr": True}},
        "optimizer": {**optimizer.state_dict(), "loss_scaler": scaler()},
        "param_schedulers": _schedules(optimizer),
    }  # fmt: skip


def mmengine_ema() -> Root:
    """`EMAHook` writes the average where the model stands, and the model under the average's names."""
    root = mmengine()
    live = root["state_dict"]
    average = {name: one * 0.5 if one.is_floating_point() else one + 1 for name, one in live.items()}
    root["ema_state_dict"] = {
        "steps": torch.tensor(STEPS),
        **{f"module.{name}": one for name, one in live.items()},
    }
    return {**root, "state_dict": average}


@once
def mmengine_of_two() -> Root:
    """`OptimWrapperDict`: optimizers and schedules by name."""
    root = mmengine()
    model = Mlp()
    first = torch.optim.AdamW(model.layers.parameters(), lr=0.01)
    second = torch.optim.SGD([*model.norm.parameters(), *model.head.parameters()], lr=0.1, momentum=0.9)
    train(model, first, STEPS)
    train(model, second, STEPS)
    root["state_dict"] = model.state_dict()
    root["optimizer"] = {
        "body": {**first.state_dict(), "loss_scaler": scaler()},
        "head": {**second.state_dict(), "loss_scaler": {**scaler(), "scale": 8.0}},
    }
    root["param_schedulers"] = {"body": _schedules(first), "head": _schedules(second)}
    return root


def _scheduled() -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(6)
    model = ConvNet()
    optimizer = torch.optim.SGD([{"params": [one]} for one in model.parameters()], lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    trained(model, optimizer, scheduler)
    return model, optimizer, scheduler


@once
def detectron2() -> Root:
    """Iterations count from 0: the file of iteration 2 is written after three."""
    model, optimizer, scheduler = _scheduled()
    inner = {"iteration": STEPS - 1, "optimizer": optimizer.state_dict(), "grad_scaler": scaler()}
    hooks = {"LRScheduler": {"base_lrs": scheduler.base_lrs, "last_epoch": scheduler.last_epoch}}
    trainer = {"iteration": STEPS - 1, "hooks": hooks, "_trainer": inner}
    return {"model": model.state_dict(), "trainer": trainer, "iteration": STEPS - 1}


@once
def fvcore() -> Root:
    """Older ones: whatever the `Checkpointer` was given, by name."""
    model, optimizer, scheduler = _scheduled()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
        "iteration": STEPS - 1,
    }  # fmt: skip

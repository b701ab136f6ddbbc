"""Mechanisms of public reports for which no family has a case, and those that files cannot tell."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from tests.check_cases.case import Faulty
from tests.check_cases.training import Mlp, saved, train
from tests.check_cases.two import Backbone, two, untouched

Saved = dict[str, Any]
TARGETS: Final = Path(__file__).with_name("targets.py")


def one(change: Callable[[Saved], None], *, optimizer: Any = torch.optim.AdamW, **more: Any) -> Callable[[Path], Path]:
    """Three real steps, and what `change` does to what is saved."""

    def make(folder: Path) -> Path:
        torch.manual_seed(0)
        model = Mlp()
        stepped = optimizer(model.parameters(), lr=0.01)
        train(model, stepped)
        found = copy.deepcopy(saved(model, stepped, **more))
        change(found)
        torch.save(found, folder / "model.pt")
        return folder / "model.pt"

    return make


def layers_joined(folder: Path) -> Path:
    """The head is trained alone, then the layers join it in a group of their own."""
    torch.manual_seed(0)
    model = Mlp()
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=0.01)
    train(model, optimizer)
    optimizer.add_param_group({"params": list(model.layers.parameters()), "lr": 1e-3})
    train(model, optimizer)
    torch.save(saved(model, optimizer, 6), folder / "model.pt")
    return folder / "model.pt"


def at_rate_zero(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train(model, optimizer, 3, seed=1)


def as_it_is(found: Saved) -> None:
    """Leave it as the training saved it."""


def half_moments(found: Saved) -> None:
    """Small gradients' squares are zero in fp16."""
    for state in found["optimizer"]["state"].values():
        state["exp_avg"] = (state["exp_avg"] * 1e-3).half()
        state["exp_avg_sq"] = (state["exp_avg_sq"] * 1e-6).half()


def half_without_masters(found: Saved) -> None:
    """An fp16 training that updates fp32 copies, which are not saved."""
    found["model"] = {name: value.half() for name, value in found["model"].items()}


def no_slow_weights(found: Saved) -> None:
    """Lookahead's groups are there, and the slow weights that it goes back to are not."""
    for group in found["optimizer"]["param_groups"]:
        group |= {"lookahead_alpha": 0.5, "lookahead_k": 2, "lookahead_step": 3}


def train_mode(found: Saved) -> None:
    """A schedule-free optimizer whose weights are those to train and not those to use."""
    for group in found["optimizer"]["param_groups"]:
        group["train_mode"] = True


def constructors_decay(left: Saved, right: Saved) -> None:
    right["optimizer"]["param_groups"][0]["weight_decay"] = 0.01


def average_in_place(found: Saved) -> None:
    """Written during validation, with the average swapped in for the weights."""
    average = {name: value * 0.9 for name, value in found["model"].items()}
    found["ema"] = {"module": average, "updates": 3}
    found["model"] = copy.deepcopy(average)


def nan_weight(found: Saved) -> None:
    found["model"]["head.weight"][1, 2] = float("nan")


def no_state_for_one(found: Saved) -> None:
    del found["optimizer"]["state"][3]


def numpys_number(found: Saved) -> None:
    found["best_loss"] = np.float64(0.5)


def numpys_generator(found: Saved) -> None:
    found["rng"]["numpy"] = np.random.RandomState(0).get_state()


def cut(folder: Path) -> Path:
    path = one(as_it_is)(folder)
    path.write_bytes(path.read_bytes()[:-300])
    return path


FAULTY: tuple[Faulty, ...] = (
    Faulty("layers that joined later, and a training that begins without them", layers_joined, "CK301",
           options={"target": f"{TARGETS}:head_first"}, mechanism="groups_late"),
    Faulty("a training with a scaler of which the file has no state", one(as_it_is), "CK206", severity="warning",
           options={"target": f"{TARGETS}:with_scaler_and_average"}, mechanism="scaler"),
    Faulty("a training with an average of which the file has no state", one(as_it_is), "CK208", severity="warning",
           options={"target": f"{TARGETS}:with_scaler_and_average"}, mechanism="ema_missing"),
    Faulty("held parameters at rate zero whose moments move", two(untouched, model=Backbone, between=at_rate_zero),
           "CK402", options={"freeze": {"*": "hold"}}, mechanism="lr0"),
    Faulty("a decay that is the constructor's after a resume", two(constructors_decay, weight_decay=0.1), "CK306",
           severity="warning", mechanism="hyper_stale"),
    Faulty("second moments that fp16 made zero", one(half_moments), "CK503", "layers.0.weight",
           mechanism="v_underflow"),
    Faulty("one trained parameter without state", one(no_state_for_one), "CK202", "layers.1.bias", mechanism="lazy"),
    Faulty("a file that was cut by a kill", cut, "CK101", mechanism="corrupt"),
    Faulty("a weight that is no number", one(nan_weight), "CK501", "head.weight", mechanism="nan"),
    Faulty("fp16 weights without their fp32 copies", one(half_without_masters), "CK504", "layers.0.weight", "info",
           mechanism="master"),
    Faulty("a wrapped optimizer without its slow weights", one(no_slow_weights), "CK203", severity="warning",
           mechanism="wrap"),
    Faulty("a release with the weights of the optimizer's train mode", one(train_mode), "CK208", severity="warning",
           options={"purpose": "release"}, mechanism="mode"),
    Faulty("a save with the average in the weights' place", one(average_in_place), "CK208", "layers.0.weight",
           "warning", mechanism="ema_swap"),
    Faulty("a number of numpy's, which torch.load refuses by its default", one(numpys_number), "CK104",
           severity="info", mechanism="wonly"),
    Faulty("the generator of numpy, which torch.load refuses by its default", one(numpys_generator), "CK104",
           severity="info", mechanism="wonly"),
)  # fmt: skip
LEGAL = ()

NOT_CAUGHT: Final[dict[str, str]] = {}
"""Mechanisms whose reports no file tells, and why: none."""

NOT_TOLD: Final[dict[str, str]] = {
    "B029": "the groups were wrong from the first step on: no file says what was meant",
    "B030": "the groups were wrong from the first step on: no file says what was meant",
    "B032": "the groups were wrong from the first step on: no file says what was meant",
    "B036": "the groups were wrong from the first step on: no file says what was meant",
    "B064": "an epoch that is one behind is also how some trainers number their epochs",
    "B082": "the file holds the right fields: what the loaded function is bound to is not in it",
    "B117": "the file holds its average: that the script does not load it shows in a run only",
    "B118": "a schedule's file names no class, and both classes keep fields of one form",
    "B138": "the position is in the file: in which unit the loader counts is not",
    "B140": "the skip is the loop's own, and repeats in later epochs whatever is loaded",
    "B147": "the counter within the window is not in the file, nor the window's length",
    "B149": "the in-epoch step is set by the loop after the load, whatever is loaded",
    "B151": "an Accelerate folder records no step that the progress could be held against",
    "B169": "the file is whole: the copies are made too early while it is loaded",
    "B171": "the file is whole: the copies are not refreshed while it is loaded",
    "B174": "the file is whole: the model is built in another precision at the resume",
    "B187": "the loss keeps a model of its own, which is no part of a checkpoint",
    "B195": "tied names are left out on purpose, and the file is as it should be",
    "B199": "two live optimizers share tensors within one process, and each is right in its own file",
    "B212": "the device that a tensor was saved from is no content of a checkpoint",
    "B213": "references that are held elsewhere in the process are in no file",
    "B251": "the file is whole: the wrapper and the optimizer in it part while it is loaded",
    "B254": "which fields a callback should have kept is not known from a file",
    "B256": "which fields a callback should have kept is not known from a file",
    "B262": "which fields a callback should have kept is not known from a file",
    "B263": "a checkpoint that a rotation deleted leaves no trace in the folder",
}
"""Reports whose mechanism is told, but not in the form in which they had it, and why."""

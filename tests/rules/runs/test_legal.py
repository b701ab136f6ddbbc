"""What a correct resume may look like: nothing here may be a failure."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, OneCycleLR, ReduceLROnPlateau, SequentialLR

from ckptcheck.finding import Severity
from ckptcheck.state.digest import LINEAR_128
from tests.rules.trainings import (
    WIDTH,
    Accumulating,
    Averaged,
    Counter,
    Counting,
    Freezing,
    Growing,
    Net,
    Scaled,
    Thawing,
    Tied,
    Training,
    TwoModels,
    adam,
    decayed,
    factory,
    momentum,
)
from tests.rules.trials import Trials


def one(make: Any, **values: Any) -> Any:
    return {"make_optimizers": lambda self: [make(self.model.parameters(), **values)]}


def decay_groups(reverse: bool) -> Any:
    return lambda self: [decayed(self.model, reverse)]


def in_reverse(self: Training) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(list(self.model.parameters())[::-1], lr=0.01)]


def names_in_order(self: Training) -> list[str]:
    names = {id(each): name for name, each in self.model.named_parameters()}
    return [names[id(each)] for group in self.optimizers[0].param_groups for each in group["params"]]


def with_names(self: Training, checkpoint: dict[str, Any]) -> None:
    checkpoint["names"] = names_in_order(self)


def bound_by_name(self: Training, path: Path) -> None:
    """Gives every parameter its own state, whatever the order."""
    self.checkpoint = torch.load(path, weights_only=False)
    saved = dict(zip(self.checkpoint["names"], self.checkpoint["optimizer0"]["state"].values(), strict=True))
    own = self.optimizers[0].state_dict()
    own["state"] = {place: saved[name] for place, name in enumerate(names_in_order(self))}
    self.model.load_state_dict(self.checkpoint["model"])
    self.data.load_state_dict(self.checkpoint["data"])
    self.optimizers[0].load_state_dict(own)


def on_the_inside(attribute: str) -> Any:
    """A load that unwraps the model first."""

    def load(self: Training, path: Path) -> None:
        wrapped, self.model = self.model, getattr(self.model, attribute)
        Training.load(self, path)
        self.model = wrapped

    return load


def wrapped(make: Any) -> Any:
    def finish(self: Training) -> None:
        self.model = make(self.model)

    return finish


def moves_generators(self: Training) -> None:
    random.random()
    np.random.rand()
    torch.rand(1)


def reseeds_numpy(self: Training) -> None:
    np.random.seed()


class WithSpare(Net):
    """Has a layer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)


class Bag(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, WIDTH, sparse=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.table((inputs.abs() * 5).long().clamp(0, 19)).mean(1)[:, :2]


class Matrices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, bias=False)
        self.last = nn.Linear(WIDTH, 2, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(inputs).tanh())


def with_closure(self: Training, s: int) -> Any:
    inputs, targets = self.data.next()

    def closure() -> torch.Tensor:
        self.optimizers[0].zero_grad()
        loss = functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        return loss

    return self.optimizers[0].step(closure)


class MasterSGD(torch.optim.Optimizer):
    """Momentum and a copy of the weights in float32, whatever the weights are in."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for each in self.param_groups[0]["params"]:
            state = self.state[each]
            if not state:
                state.update(step=0, exp_avg=torch.zeros(each.shape), master=each.float())
            state["step"] += 1
            state["exp_avg"].mul_(0.9).add_(each.grad.float())
            state["master"].sub_(0.01 * state["exp_avg"])
            each.copy_(state["master"])


def master_load(self: Training, path: Path) -> None:
    """`Optimizer.load_state_dict` would cast float32 state to the weights' dtype."""
    checkpoint = torch.load(path, weights_only=False)
    self.model.load_state_dict(checkpoint["model"])
    self.data.load_state_dict(checkpoint["data"])
    for place, each in enumerate(self.optimizers[0].param_groups[0]["params"]):
        self.optimizers[0].state[each] = checkpoint["optimizer0"]["state"][place]


def bf16_loss(self: Training, s: int) -> torch.Tensor:
    inputs, targets = self.data.next()
    return functional.mse_loss(self.model(inputs.bfloat16()).float(), targets)


def rate_from_step(self: Training, s: int) -> Any:
    in_every_group(lr=0.01 / s)(self)
    return Training.step(self, s)


def in_every_group(**values: Any) -> Any:
    def change(self: Training) -> None:
        for group in self.optimizers[0].param_groups:
            group.update(values)

    return change


def trains_at_each_step(self: Training, s: int) -> Any:
    self.model.train()
    return Training.step(self, s)


def evaluates_in_between(self: Training, s: int) -> Any:
    loss = Training.step(self, s)
    self.model.eval()
    with torch.no_grad():
        self.model(torch.zeros(2, WIDTH))
    self.model.train()
    return loss


def clears_at_the_end(set_to_none: bool) -> Any:
    def step(self: Training, s: int) -> Any:
        loss = Training.step(self, s)
        self.optimizers[0].zero_grad(set_to_none=set_to_none)
        return loss

    return step


def schedule(make: Any) -> Any:
    return {"make_schedulers": lambda self: [make(self.optimizers[0])]}


def warm_up_then_cosine(optimizer: torch.optim.Optimizer) -> SequentialLR:
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=4), CosineAnnealingLR(optimizer, 10)], [4])


def rebuilt(make: Any) -> Any:
    """Builds optimizer and scheduler anew, and loads both afterwards: the right order."""

    def before_load(self: Training) -> None:
        self.optimizers[0] = adam(self.model)
        self.schedulers[0] = make(self.optimizers[0])

    return before_load


def plateau_update(self: Training) -> None:
    self.optimizers[0].step()
    self.schedulers[0].step(1.0)


def without_alias(self: Training, checkpoint: dict[str, Any]) -> None:
    del checkpoint["model"]["out.weight"]


def not_strict(self: Training, path: Path) -> None:
    checkpoint = torch.load(path, weights_only=False)
    self.model.load_state_dict(checkpoint["model"], strict=False)
    self.optimizers[0].load_state_dict(checkpoint["optimizer0"])
    self.data.load_state_dict(checkpoint["data"])


def by_hand(self: Training, s: int) -> Any:
    self.model.zero_grad()
    loss = self.loss_of(s)
    loss.backward()
    with torch.no_grad():
        for each in self.model.parameters():
            each.sub_(0.01 * each.grad)
    return loss


def starts_training_in_step_3(self: Training, s: int) -> Any:
    return Training.step(self, s) if s >= 3 else None


class Adversarial(TwoModels):
    """Each model's backward leaves gradients in the other, which its own step clears."""

    def step(self, s: int) -> Any:
        inputs, targets = self.data.next()
        first, second = self.model.values()
        losses = {}
        for name, optimizer, sign in (("b", self.optimizers[1], 1), ("a", self.optimizers[0], -1)):
            optimizer.zero_grad()
            judged = second(torch.cat([first(inputs)] * 4, 1))
            losses[name] = functional.mse_loss(second(inputs), targets) + sign * judged.mean()
            losses[name].backward()
            optimizer.step()
        return losses


def clock(self: Training) -> None:
    self.extra = {"clock": Counter(random.SystemRandom().random())}


def last_step(self: Training, s: int) -> Any:
    loss = Training.step(self, s)
    self.extra["clock"].value = s
    return loss


def only_head(self: Training) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(self.model.head.parameters(), lr=0.01)]


def spare(self: Training) -> nn.Module:
    return WithSpare()


def bf16(self: Training) -> nn.Module:
    return Net(dtype=torch.bfloat16)


def normed(self: Training) -> nn.Module:
    return Net(dropout=0.5, norm=True)


COSINE = schedule(lambda optimizer: CosineAnnealingLR(optimizer, T_max=20))
LINEAR = schedule(lambda optimizer: LinearLR(optimizer, 0.1, total_iters=10))
TORCH_OPTIMIZERS = ("Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")


def unwrapped_save(self: Training, path: Path) -> None:
    wrapped, self.model = self.model, self.model.module
    Training.save(self, path)
    self.model = wrapped


SILENT = {
    "SGD with momentum": [factory(make_optimizers=lambda self: [momentum(self.model)])],
    "SGD without momentum": [factory(**one(torch.optim.SGD, lr=0.1))],
    "SGD without momentum, its empty state not loaded": [factory(**one(torch.optim.SGD, lr=0.1), lose=("optimizer0",))],
    "LBFGS keeps its state under the first parameter": [
        factory(**one(torch.optim.LBFGS, lr=0.1, max_iter=3), step=with_closure)
    ],
    "SparseAdam": [factory(make_model=lambda self: Bag(), **one(torch.optim.SparseAdam, lr=0.01))],
    "Muon": [factory(make_model=lambda self: Matrices(), **one(torch.optim.Muon, lr=0.01))],
    "AdamW fused": [factory(**one(torch.optim.AdamW, lr=0.01, fused=True))],
    "AdamW with tensor lr": [factory(**one(torch.optim.AdamW, lr=torch.tensor(0.01)))],
    **{name: [factory(**one(getattr(torch.optim, name), lr=0.01))] for name in TORCH_OPTIMIZERS},
    "bf16 weights with float32 moments": [
        factory(make_model=bf16, **one(MasterSGD), loss_of=bf16_loss, load=master_load)
    ],
    "parameters that nothing trains have no state": [factory(make_model=spare)],
    "counters of frozen parameters lag behind": [factory(Freezing)],
    "the optimizer has no state before its first step": [factory(step=starts_training_in_step_3)],
    "tied weights": [factory(make_model=lambda self: Tied())],
    "tied weights saved once": [factory(make_model=lambda self: Tied(), spoil=without_alias, load=not_strict)],
    "DataParallel after the load": [
        factory(), factory(finish=wrapped(nn.DataParallel), load=on_the_inside("module"))
    ],
    "DataParallel before the save": [
        factory(finish=wrapped(nn.DataParallel), save=unwrapped_save), factory()
    ],
    "two models with two optimizers": [factory(TwoModels)],
    "a generator and its critic": [factory(Adversarial)],
    "layers are thawed in the middle of both runs": [factory(Thawing)],
    "layers thawed before the save, and by the load": [
        factory(Thawing, when=2, before_load=lambda self: self.model.layers.requires_grad_(True))
    ],
    "a group is added in the middle of both runs": [factory(Growing)],
    "a group is added before the save, and by the load": [
        factory(Growing, when=2, before_load=lambda self: self.grow())
    ],
    "gradients pile up in parameters that no optimizer has": [factory(make_optimizers=only_head)],
    "optimizer and cosine schedule rebuilt before they are loaded": [
        factory(**COSINE, before_load=rebuilt(lambda optimizer: CosineAnnealingLR(optimizer, T_max=20)))
    ],
    "optimizer and LinearLR rebuilt before they are loaded": [
        factory(**LINEAR, before_load=rebuilt(lambda optimizer: LinearLR(optimizer, 0.1, total_iters=10)))
    ],
    "a one-cycle schedule": [factory(**schedule(lambda optimizer: OneCycleLR(optimizer, 0.1, total_steps=20)))],
    "warm-up, then cosine": [factory(**schedule(warm_up_then_cosine))],
    "a plateau schedule": [factory(**schedule(ReduceLROnPlateau), update=plateau_update)],
    "a moving average": [factory(Averaged)],
    "a gradient scaler": [factory(Scaled)],
    "accumulated gradients are saved": [factory(Accumulating)],
    "a counter of one's own": [factory(Counting)],
    "BatchNorm and dropout": [factory(make_model=normed)],
    "an evaluation in each step": [factory(make_model=normed, step=evaluates_in_between)],
    "hand-written updates": [factory(make_optimizers=lambda self: [], step=by_hand)],
    "gradients cleared at the end of a step": [factory(step=clears_at_the_end(set_to_none=True))],
    "another foreach flag": [factory(), factory(after_load=in_every_group(foreach=True))],
    "numpy's generator, which nobody seeds or uses": [factory(finish=reseeds_numpy, lose=("numpy",))],
}  # fmt: skip
"""Rows that may say no more than what is without effect."""

WITHOUT_EFFECT = {
    "groups bound by name in another order": (
        "CK302",
        [
            factory(make_optimizers=decay_groups(reverse=False), spoil=with_names),
            factory(make_optimizers=decay_groups(reverse=True), load=bound_by_name),
        ],
    ),
    "members bound by name in another order": (
        "CK302",
        [factory(spoil=with_names), factory(make_optimizers=in_reverse, load=bound_by_name)],
    ),
    "gradients left over that the next step clears": ("CK613", [factory()]),
    "zero gradients that are gone": ("CK613", [factory(step=clears_at_the_end(set_to_none=False))]),
    "generators that nobody draws from": ("CK603", [factory(after_load=moves_generators)]),
    "the model in evaluation mode until the step begins": (
        "CK601",
        [factory(make_model=normed, after_load=lambda self: self.model.eval(), step=trains_at_each_step)],
    ),
    "a foreach flag": ("CK614", [factory(), factory(after_load=in_every_group(foreach=True))]),
    "a rate that each step sets from its number": (
        "CK306",
        [factory(step=rate_from_step, after_load=in_every_group(lr=0.3))],
    ),
    "a value of one's own that each step sets": ("CK601", [factory(finish=clock, step=last_step, lose=("clock",))]),
}


@pytest.mark.parametrize("pair", SILENT.values(), ids=SILENT)
def test_a_correct_resume_is_no_failure(trial: Trials, pair: Any):
    found = trial(*pair)
    assert found.code is None, found.finding.message
    assert found.case.goes_on_exactly
    assert found.judgement.place is None
    assert found.case.trajectory.compared.steps == 3
    assert found.case.trajectory.compared.parameters > 0
    assert all(each.evidence.get("without_effect") for each in found.judgement.findings)


@pytest.mark.parametrize(("code", "pair"), WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_what_has_no_effect_is_a_warning_and_no_cause(trial: Trials, code: str, pair: Any):
    found = trial(*pair)
    assert found.code is None
    told = found.of(code)
    assert [(each.severity, each.where.step, each.where.stage) for each in told] == [(Severity.WARNING, 3, "load")]
    assert told[0].evidence["without_effect"] is True
    assert told[0].message.endswith("without effect on the steps that follow")


@pytest.mark.parametrize("pair", [SILENT["Adam"], SILENT["SparseAdam"], SILENT["BatchNorm and dropout"]])
def test_the_digest_of_other_devices_says_the_same(trial: Trials, pair: Any):
    found = trial(*pair, digest=LINEAR_128)
    assert found.code is None
    assert found.case.goes_on_exactly


def test_a_clean_resume_compares_every_tensor_of_every_step(trial: Trials):
    compared = trial(factory()).case.trajectory.compared
    assert (compared.steps, compared.parameters, compared.state_tensors) == (3, 8, 24)
    parameters = 4 * (3 * (8 * 8 + 8) + 8 * 2 + 2)
    assert compared.bytes >= 3 * 4 * parameters  # values, gradients and two moments in three steps

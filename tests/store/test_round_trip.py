"""A run that was saved and loaded into fresh objects goes on bit for bit as the one that was never stopped."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler, swa_utils

from ckptcheck.experiment.run import Run
from ckptcheck.store.load import load, load_run
from ckptcheck.store.save import save, save_run
from tests.store.runs import Bag, Net, Training, TwoMatrices, everything, raw, training


class KeepsFloat32Moments(optim.Optimizer):
    """As mixed-precision optimizers do: bf16 parameters, fp32 momentum; state of all kinds."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    moment = state.setdefault("moment", torch.zeros(parameter.shape))
                    moment.mul_(0.9).add_(parameter.grad.float())
                    state.update(name="first", pair=(1, moment * 2), nested={"half": moment.half()})
                    parameter.sub_((group["lr"] * moment).to(parameter.dtype))


OPTIMIZERS = {
    "SGD without momentum": partial(optim.SGD, lr=0.1),
    "SGD with Nesterov momentum": partial(optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": optim.Adam,
    "Adam with amsgrad": partial(optim.Adam, amsgrad=True),
    "Adam, one parameter at a time": partial(optim.Adam, foreach=False),
    "Adam, foreach": partial(optim.Adam, foreach=True),
    "Adam, fused": partial(optim.Adam, fused=True),
    "AdamW": partial(optim.AdamW, weight_decay=0.1),
    "AdamW with a tensor lr": lambda params: optim.AdamW(params, lr=torch.tensor(0.01), foreach=False),
    "Adamax": optim.Adamax,
    "NAdam": optim.NAdam,
    "RAdam": optim.RAdam,
    "Adagrad": optim.Adagrad,
    "Adadelta": optim.Adadelta,
    "RMSprop, centered with momentum": partial(optim.RMSprop, centered=True, momentum=0.9),
    "Rprop": optim.Rprop,
    "ASGD": optim.ASGD,
    "Adafactor": optim.Adafactor,
    "LBFGS": partial(optim.LBFGS, max_iter=3, history_size=4),
    "LBFGS with line search": partial(optim.LBFGS, max_iter=3, line_search_fn="strong_wolfe"),
}
OTHER_RUNS = {
    "Muon": partial(training, optimizer=optim.Muon, model=TwoMatrices),
    "SparseAdam": partial(training, optimizer=optim.SparseAdam, model=Bag, inputs=lambda: torch.randint(7, (5,))),
    "Adam on bf16": partial(
        training, optimizer=optim.Adam, model=partial(Net, torch.bfloat16), inputs=lambda: torch.randn(6, 4).bfloat16()
    ),
    "fp32 moments for bf16 parameters": partial(
        training,
        optimizer=KeepsFloat32Moments,
        model=partial(Net, torch.bfloat16),
        inputs=lambda: torch.randn(6, 4).bfloat16(),
    ),
    "a convolution in channels_last": partial(
        training,
        optimizer=partial(optim.SGD, lr=0.1, momentum=0.9),
        model=lambda: nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last),
        inputs=lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    ),
}
RUNS = {**{name: partial(training, optimizer=one) for name, one in OPTIMIZERS.items()}, **OTHER_RUNS}


def test_every_class_of_torch_optim_has_a_row() -> None:
    classes = {one for one in vars(optim).values() if isinstance(one, type)} - {optim.Optimizer}
    covered = {type(build(0).optimizer) for build in RUNS.values()}
    assert classes <= covered


@pytest.mark.parametrize("build", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("steps", [0, 3])
def test_training_goes_on_bit_for_bit(build: Any, steps: int, tmp_path: Path) -> None:
    reference = build(0)
    reference.train(steps)
    save(tmp_path / "s", **reference.fields, step=steps)
    reference.train(3)
    wanted = everything(reference.fields)

    resumed = build(1)
    resumed.train(1)
    torch.manual_seed(77)
    assert load(tmp_path / "s", **resumed.fields) == steps
    resumed.train(3)

    assert everything(resumed.fields) == wanted


@pytest.mark.parametrize("build", RUNS.values(), ids=RUNS)
def test_live_state_right_after_the_load_is_what_was_saved(build: Any, tmp_path: Path) -> None:
    reference = build(0)
    reference.train(2)
    before = everything(reference.fields)
    save(tmp_path / "s", **reference.fields)
    assert everything(reference.fields) == before, "saving changed something"

    resumed = build(1)
    assert load(tmp_path / "s", **resumed.fields) is None
    assert everything(resumed.fields) == before


SCHEDULERS = {
    "StepLR": lambda one: lr_scheduler.StepLR(one, 2),
    "MultiStepLR": lambda one: lr_scheduler.MultiStepLR(one, [2, 2, 4]),
    "LambdaLR": lambda one: lr_scheduler.LambdaLR(one, lambda epoch: 0.9**epoch),
    "MultiplicativeLR": lambda one: lr_scheduler.MultiplicativeLR(one, lambda epoch: 0.9),
    "ConstantLR": lambda one: lr_scheduler.ConstantLR(one, total_iters=4),
    "LinearLR": lambda one: lr_scheduler.LinearLR(one, total_iters=5),
    "ExponentialLR": lambda one: lr_scheduler.ExponentialLR(one, 0.9),
    "CosineAnnealingLR": lambda one: lr_scheduler.CosineAnnealingLR(one, 10),
    "CosineAnnealingWarmRestarts": lambda one: lr_scheduler.CosineAnnealingWarmRestarts(one, 2),
    "PolynomialLR": lambda one: lr_scheduler.PolynomialLR(one, 10),
    "CyclicLR": lambda one: lr_scheduler.CyclicLR(one, 0.01, 0.1, 3, cycle_momentum=False),
    "OneCycleLR": lambda one: lr_scheduler.OneCycleLR(one, 0.1, 10),
    "SWALR": lambda one: swa_utils.SWALR(one, 0.05),
    "SequentialLR": lambda one: lr_scheduler.SequentialLR(
        one, [lr_scheduler.ConstantLR(one), lr_scheduler.StepLR(one, 2)], [2]
    ),
    "ChainedScheduler": lambda one: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(one), lr_scheduler.StepLR(one, 2)]
    ),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
@pytest.mark.parametrize("lr", [float, torch.tensor], ids=["float lr", "tensor lr"])
def test_schedules_go_on_bit_for_bit(scheduler: Any, lr: Any, tmp_path: Path) -> None:
    def build(seed: int) -> Training:
        run = training(seed, lambda params: optim.AdamW(params, lr=lr(0.1), foreach=False))
        one = scheduler(run.optimizer)
        return Training({**run.fields, "scheduler": one}, schedulers=[one])

    reference, resumed = build(0), build(1)
    reference.train(3)
    save(tmp_path / "s", **reference.fields)
    reference.train(3)
    wanted = everything(reference.fields)

    load(tmp_path / "s", **resumed.fields)
    resumed.train(3)
    assert everything(resumed.fields) == wanted


class Source:
    """Data with a position of every kind of type."""

    def __init__(self) -> None:
        self.position = 0
        self.generator = np.random.default_rng(3)
        self.order = list(range(70_000))

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "numpy": self.generator.bit_generator.state, "order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position, self.order = state["position"], state["order"]
        self.generator.bit_generator.state = state["numpy"]


def whole_run(seed: int) -> Run:
    torch.manual_seed(seed)
    model = {"encoder": Net(), "head": nn.Linear(3, 2)}
    optimizers = [
        optim.Adam([{"params": model["encoder"].first.parameters()}, {"params": [model["encoder"].last.weight]}]),
        optim.SGD(model["head"].parameters(), lr=0.1, momentum=0.9),
    ]
    ema = swa_utils.AveragedModel(model["encoder"], use_buffers=True)
    source, scaler = Source(), torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    schedulers = [lr_scheduler.StepLR(one, 2) for one in optimizers]

    def step(number: int) -> None:
        source.position += 1
        inputs = torch.tensor(source.generator.standard_normal((6, 4)) + np.random.rand() + random.random()).float()
        loss = model["head"](model["encoder"](inputs)).square().mean() / 2
        scaler.scale(loss).backward()
        if number % 2 == 0:  # accumulates over two steps
            for one, schedule in zip(optimizers, schedulers, strict=True):
                scaler.step(one)
                schedule.step()
                one.zero_grad()
            scaler.update()
            ema.update_parameters(model["encoder"])

    return Run(
        model=model,
        step=step,
        optimizer=optimizers,
        scheduler=schedulers,
        scaler=scaler,
        ema=ema,
        data=source,
        extra={"source": Source()},
    )


def fields_of(run: Run) -> dict[str, Any]:
    names = ("model", "optimizer", "scheduler", "scaler", "ema", "data", "extra")
    return {name: getattr(run, name) for name in names}


@pytest.mark.parametrize("saved_after", [4, 5], ids=["at a whole window", "in the middle of an accumulation window"])
def test_a_run_with_everything_in_it_goes_on_bit_for_bit(saved_after: int, tmp_path: Path) -> None:
    reference = whole_run(0)
    for number in range(1, saved_after + 1):
        reference.step(number)
    save_run(tmp_path / "s", reference, saved_after)
    for number in range(saved_after + 1, 10):
        reference.step(number)
    wanted = everything(fields_of(reference)), np.random.get_state()[1].tolist(), random.getstate()

    resumed = whole_run(1)
    np.random.seed(5)
    random.seed(5)
    assert load_run(tmp_path / "s", resumed) == saved_after
    for number in range(saved_after + 1, 10):
        resumed.step(number)
    assert (everything(fields_of(resumed)), np.random.get_state()[1].tolist(), random.getstate()) == wanted


def test_none_and_zero_gradients_stay_what_they_were(tmp_path: Path) -> None:
    run = training(0, optim.Adam)
    run.model.first.weight.grad = torch.zeros(5, 4)
    run.model.first.bias.grad = torch.full((5,), -0.0)
    run.model.last.weight.grad = torch.ones(3, 5)
    save(tmp_path / "s", **run.fields)
    resumed = training(1, optim.Adam)
    resumed.train(1)
    load(tmp_path / "s", **resumed.fields)
    assert [None if one.grad is None else raw(one.grad) for one in resumed.model.parameters()] == [
        None if one.grad is None else raw(one.grad) for one in run.model.parameters()
    ]
    assert resumed.model.last.bias.grad is None


def test_saving_draws_no_random_number_and_a_second_save_replaces_the_first(tmp_path: Path) -> None:
    run = training(0, optim.Adam)
    before = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()
    save(tmp_path / "deep" / "s", **run.fields, step=1)
    save(tmp_path / "deep" / "s", **run.fields, step=2)
    assert (torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()) == before
    assert load(tmp_path / "deep" / "s", **run.fields) == 2
    kinds = sorted(one.name.split("-")[0] for one in (tmp_path / "deep" / "s").iterdir())
    assert kinds == ["model", "sections", "training_state.json"]


def test_digests_of_the_linear_kind_are_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ckptcheck.store.capture.default_algorithm", lambda devices: "linear_128")
    reference, resumed = training(0, optim.Adam), training(1, optim.Adam)
    reference.train(1)
    save(tmp_path / "s", **reference.fields)
    wanted = everything(reference.fields)
    assert "linear_128:" in (tmp_path / "s" / "training_state.json").read_text()
    load(tmp_path / "s", **resumed.fields)
    assert everything(resumed.fields) == wanted

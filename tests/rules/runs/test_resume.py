"""CK6, CK205 and CK306: schedules, hyperparameters, generators, data, buffers, scaler, gradients, and what remains."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from ckptcheck.finding import Severity
from tests.rules.faults import Fault
from tests.rules.trainings import (
    Accumulating,
    Batches,
    Counter,
    Counting,
    Net,
    Scaled,
    Training,
    adam,
    decayed,
    factory,
)
from tests.rules.trials import Trials, own_copy


def in_every_group(**values: Any) -> Any:
    def change(self: Training) -> None:
        for group in self.optimizers[0].param_groups:
            group.update(values)

    return change


def decay_swapped(self: Training) -> None:
    first, second = self.optimizers[0].param_groups
    first["weight_decay"], second["weight_decay"] = second["weight_decay"], first["weight_decay"]


def decay_groups(self: Training) -> list[torch.optim.Optimizer]:
    return [decayed(self.model)]


def with_decay(self: Training) -> list[torch.optim.Optimizer]:
    return [adam(self.model, weight_decay=0.5)]


def plain_sgd(self: Training) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(self.model.parameters(), lr=0.05)]


def starts_later(self: Training) -> None:
    self.made = 0


def decay_at_the_fourth(self: Training, s: int) -> Any:
    self.made += 1
    if self.made == 4:
        self.optimizers[0].param_groups[0]["weight_decay"] = 0.2
    return Training.step(self, s)


WARNING = {"severity": Severity.WARNING}

HYPERPARAMETERS = (
    Fault(
        "the rate is set anew",
        "CK306",
        factory(after_load=in_every_group(lr=0.5)),
        where={"optimizer": 0, "group": 0, "key": "lr"},
        numbers={"saved": 0.01, "loaded": 0.5, "wins": "live"},
        **WARNING,
    ),
    Fault(
        "betas are set anew",
        "CK306",
        factory(after_load=in_every_group(betas=(0.8, 0.95))),
        where={"optimizer": 0, "group": 0, "key": "betas[0]"},
        names=("betas[1] of group 0: 0.999 when saved, 0.95 after the load",),
        numbers={"saved": 0.9, "loaded": 0.8},
        **WARNING,
    ),
    Fault(
        "decay is swapped between groups",
        "CK306",
        factory(make_optimizers=decay_groups, after_load=decay_swapped),
        where={"group": 0, "key": "weight_decay"},
        names=("weight_decay of group 1: 0.0 when saved, 0.1 after the load",),
        numbers={"saved": 0.1, "loaded": 0.0},
        **WARNING,
    ),
    Fault(
        "the constructor's decay is put over the saved one",
        "CK306",
        factory(),
        factory(make_optimizers=with_decay, after_load=in_every_group(weight_decay=0.5)),
        where={"key": "weight_decay"},
        numbers={"saved": 0.01, "loaded": 0.5},
        **WARNING,
    ),
    Fault(
        "the scheduler is loaded and the optimizer, which has no state, is not",
        "CK306",
        factory(
            make_optimizers=plain_sgd,
            make_schedulers=lambda self: [CosineAnnealingLR(self.optimizers[0], T_max=20)],
            lose=("optimizer0",),
        ),
        where={"key": "lr"},
        numbers={"saved": 0.0472751631047092, "loaded": 0.05},
        **WARNING,
    ),
    Fault(
        "the decay is raised in the fourth step of a process",
        "CK306",
        factory(finish=starts_later, step=decay_at_the_fourth),
        where={"step": 4, "stage": "hyperparameters", "key": "weight_decay", "group": 0},
        numbers={"saved": 0.2, "loaded": 0.01},
        confidence="likely",
        **WARNING,
    ),
)


def schedule(kind: type[LRScheduler], **values: Any) -> Any:
    return lambda self: [kind(self.optimizers[0], **values)]


def warm_up_then_cosine(self: Training) -> list[LRScheduler]:
    optimizer = self.optimizers[0]
    return [SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=4), CosineAnnealingLR(optimizer, 10)], [4])]


def built_after_the_load(kind: type[LRScheduler], **values: Any) -> Any:
    def after_load(self: Training) -> None:
        self.schedulers[0] = kind(self.optimizers[0], **values)
        self.schedulers[0].load_state_dict(self.checkpoint["scheduler0"])

    return after_load


def in_scheduler(**values: Any) -> Any:
    return lambda self, checkpoint: checkpoint["scheduler0"].update(values)


def plateau_update(self: Training) -> None:
    self.optimizers[0].step()
    self.schedulers[0].step(1.0)


def rate_by_count(self: Training, s: int) -> Any:
    self.made += 1
    in_every_group(lr=0.1 / self.made)(self)
    return Training.step(self, s)


COSINE = {"make_schedulers": schedule(CosineAnnealingLR, T_max=20)}

SCHEDULES = (
    Fault(
        "the cosine schedule is not loaded",
        "CK602",
        factory(**COSINE, lose=("scheduler0",)),
        where={"key": "last_epoch"},
        numbers={"saved_position": 3, "loaded_position": 0, "offset": -3,
                 "left_rate": 0.009045084971874739, "right_rate": 0.009396829050296391, "rate_at_step": 5},
    ),
    Fault(
        "the schedule is loaded off by one",
        "CK602",
        factory(**COSINE, spoil=in_scheduler(last_epoch=2)),
        numbers={"saved_position": 3, "loaded_position": 2, "offset": -1},
    ),
    Fault(
        "the schedule's horizon is another",
        "CK602",
        factory(**COSINE, spoil=in_scheduler(T_max=50)),
        where={"key": "T_max"},
        numbers={"entries": ["T_max"]},
    ),
    Fault(
        "a step schedule is not loaded, its rate right for one step more",
        "CK602",
        factory(make_schedulers=schedule(StepLR, step_size=4), lose=("scheduler0",)),
        numbers={"offset": -3, "left_rate": 0.001, "right_rate": 0.01, "rate_at_step": 5},
    ),
    Fault(
        "a lambda schedule is not loaded",
        "CK602",
        factory(make_schedulers=schedule(LambdaLR, lr_lambda=lambda epoch: 1 / (1 + epoch)), lose=("scheduler0",)),
        numbers={"offset": -3, "left_rate": 0.002, "right_rate": 0.005},
    ),
    Fault(
        "warm-up and cosine are not loaded",
        "CK602",
        factory(make_schedulers=warm_up_then_cosine, lose=("scheduler0",)),
        names=("_schedulers[0].last_epoch",),
        numbers={"offset": -3},
    ),
    Fault(
        "a plateau schedule loses its patience",
        "CK602",
        factory(
            make_schedulers=schedule(ReduceLROnPlateau, patience=1, threshold=10.0),
            update=plateau_update,
            lose=("scheduler0",),
        ),
        names=("num_bad_epochs",),
    ),
    Fault(
        "LinearLR is built after the optimizer was loaded",
        "CK602",
        factory(
            make_schedulers=schedule(LinearLR, start_factor=0.1, total_iters=10),
            after_load=built_after_the_load(LinearLR, start_factor=0.1, total_iters=10),
        ),
        where={"key": "lr", "optimizer": 0, "group": 0},
        names=("its constructor moved the rate",),
        numbers={"saved_rate": 0.0037000000000000006, "loaded_rate": 0.0003700000000000001},
    ),
    Fault(
        "the rate follows a count of the steps that this process made",
        "CK602",
        factory(finish=starts_later, step=rate_by_count),
        where={"step": 4, "stage": "hyperparameters", "key": "lr", "group": 0},
        names=("which is the rate of step 1",),
        numbers={"left_rate": 0.025, "right_rate": 0.1, "offset": -3},
        confidence="likely",
    ),
)  # fmt: skip


def drawing(kind: str) -> Any:
    """A loss that one generator has a say in."""
    draw = {"python": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(())}[kind]

    def loss_of(self: Training, s: int) -> torch.Tensor:
        inputs, targets = self.data.next()
        return functional.mse_loss(self.model(inputs * float(draw())), targets)

    return loss_of


def dropout(self: Training) -> nn.Module:
    return Net(dropout=0.5)


def layer_built_after_the_load(self: Training) -> None:
    nn.Linear(2, 2)


def draws_once_a_process(self: Training, s: int) -> torch.Tensor:
    self.made += 1
    if self.made == 2:
        torch.rand(1)
    return Training.loss_of(self, s)


def seeds_by_its_count(self: Training, s: int) -> torch.Tensor:
    self.made += 1
    torch.manual_seed(1000 + self.made)
    return Training.loss_of(self, s)


GENERATORS = (
    *(
        Fault(
            f"the {kind} generator is not restored, and augmentation draws from it",
            "CK603",
            factory(loss_of=drawing(kind), lose=(kind,)),
            where={"key": kind},
            numbers={"generators": [kind], "where_step_began": {kind: 1}},
            beside=("CK205",),
        )
        for kind in ("python", "numpy", "torch")
    ),
    Fault(
        "no generator is restored, and dropout draws",
        "CK603",
        factory(make_model=dropout, lose=("python", "numpy", "torch")),
        numbers={"generators": ["torch"]},
    ),
    Fault(
        "a seed is set again after the load",
        "CK603",
        factory(make_model=dropout, after_load=lambda self: torch.manual_seed(0)),
        numbers={"generators": ["torch"]},
    ),
    Fault(
        "a layer is built after the generators were restored",
        "CK603",
        factory(make_model=dropout, after_load=layer_built_after_the_load),
        numbers={"generators": ["torch"], "where_step_began": {}},
    ),
    Fault(
        "each step sets a seed by the count of its process",
        "CK603",
        factory(make_model=dropout, finish=starts_later, loss_of=seeds_by_its_count),
        where={"step": 4, "stage": "loss", "key": "torch"},
        numbers={"generators": ["torch"], "left_as_by_step": 1},
        confidence="likely",
    ),
    Fault(
        "a process draws once more in its second step",
        "CK603",
        factory(make_model=dropout, finish=starts_later, loss_of=draws_once_a_process),
        where={"step": 5, "stage": "loss", "key": "torch"},
        numbers={"generators": ["torch"]},
        confidence="likely",
    ),
)


class WithoutPosition(Batches):
    """A stream whose state_dict says nothing."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def stream_without_position(self: Training) -> None:
    self.data = WithoutPosition()


def two_back(self: Training) -> None:
    self.data.position -= 2


def by_counter(self: Training, s: int) -> torch.Tensor:
    self.data.position = self.extra["done"].value
    return Counting.loss_of(self, s)


def counter_off_by(steps: int) -> Any:
    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        checkpoint["done"]["value"] += steps

    return spoil


DATA = (
    Fault(
        "the position is lost",
        "CK604",
        factory(lose=("data",)),
        where={"key": "position"},
        names=("position was 3, is 0", "step 4 saw the batch of step 1"),
        numbers={"batch_of_step": 1, "entries": ["position"]},
    ),
    Fault(
        "the position is two back",
        "CK604",
        factory(after_load=two_back),
        numbers={"batch_of_step": 2},
    ),
    Fault(
        "the position has no state, and only the batches tell",
        "CK604",
        factory(finish=stream_without_position),
        where={"step": 4, "stage": "inputs"},
        numbers={"batch_of_step": 1, "entries": []},
        confidence="likely",
    ),
    Fault(
        "the step is saved before it is counted up",
        "CK612",
        factory(Counting, loss_of=by_counter, spoil=counter_off_by(-1)),
        where={"key": "done.value"},
        names=("step 4 does the work of step 3 again",),
        numbers={"saved": 3, "loaded": 2, "repeats_step": 3},
        beside=("CK601",),
    ),
    Fault(
        "the step is counted up twice",
        "CK612",
        factory(Counting, loss_of=by_counter, spoil=counter_off_by(1)),
        names=("step 4 does the work of step 5",),
        numbers={"saved": 3, "loaded": 4, "repeats_step": 5},
        beside=("CK601",),
    ),
)


def normed(self: Training) -> nn.Module:
    return Net(norm=True)


def only_parameters(self: Training, checkpoint: dict[str, Any]) -> None:
    fresh = Net(norm=True).state_dict()
    checkpoint["model"] |= {name: fresh[name] for name, _ in self.model.named_buffers()}


def buffer_moved_in_one_process(self: Training, s: int) -> Any:
    self.made += 1
    loss = Training.step(self, s)
    if self.made == 2:
        self.model.norm.running_mean += 1
    return loss


def first_scale_too_high(self: Training) -> None:
    self.scaler = torch.amp.GradScaler("cpu", init_scale=3.4e38, growth_interval=200)


def skips_in_one_process(self: Training) -> None:
    self.made += 1
    if self.made != 2:
        self.optimizers[0].step()


REST = (
    Fault(
        "only parameters are saved, not the statistics of the norm",
        "CK605",
        factory(make_model=normed, spoil=only_parameters),
        where={"key": "norm.running_mean"},
        numbers={"buffers": ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]},
    ),
    Fault(
        "a buffer moves outside of the forward pass in one run",
        "CK605",
        factory(make_model=normed, finish=starts_later, step=buffer_moved_in_one_process),
        where={"step": 5, "stage": "buffers", "key": "norm.running_mean"},
        confidence="likely",
    ),
    Fault(
        "the scaler is not loaded",
        "CK608",
        factory(Scaled, lose=("scaler",)),
        where={"key": "scale"},
        numbers={"saved": {"scale": 2048.0, "_growth_tracker": 1}, "loaded": {"scale": 1024.0, "_growth_tracker": 0}},
    ),
    Fault(
        "the scaler is not loaded and overflows again, so that updates are skipped",
        "CK608",
        factory(Scaled, finish=first_scale_too_high, lose=("scaler",)),
        names=("scale was", "is 3.4"),
    ),
    Fault(
        "one run leaves an update out",
        "CK612",
        factory(finish=starts_later, update=skips_in_one_process),
        where={"step": 5, "stage": "scaler", "optimizer": 0},
        names=("makes 1 update in step 5", "0 updates in the resumed one"),
        numbers={"left": 1, "right": 0},
        confidence="likely",
    ),
    Fault(
        "all accumulated gradients are lost",
        "CK613",
        factory(Accumulating, lose=("gradients",)),
        where={"parameter": "layers.0.weight"},
        names=("8 parameters", "head.bias"),
        numbers={"after_load": "none"},
    ),
    Fault(
        "the accumulated gradient of one parameter is lost",
        "CK613",
        factory(Accumulating, lose=("head.bias",)),
        where={"parameter": "head.bias"},
        numbers={"parameters": ["head.bias"]},
    ),
    Fault(
        "accumulated gradients are lost three steps before the update",
        "CK613",
        factory(Accumulating, lose=("gradients",)),
        where={"step": 1},
        options={"at": 1},
    ),
)


def older_parts(*names: str) -> Any:
    """A save that writes what some parts were after step 1, as an asynchronous one may."""

    def step(self: Training, s: int) -> Any:
        loss = Training.step(self, s)
        if s == 1:
            self.old = own_copy({name: one.state_dict() for name, one in self.parts().items()})
        return loss

    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        checkpoint.update({name: self.old[name] for name in names})

    return {"step": step, "spoil": spoil}


def older_with_generators() -> Any:
    parts = older_parts("model", "optimizer0", "data")

    def step(self: Training, s: int) -> Any:
        loss = parts["step"](self, s)
        if s == 1:
            self.old["rng"] = random.getstate(), np.random.get_state(), torch.get_rng_state()
        return loss

    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        parts["spoil"](self, checkpoint)
        checkpoint["rng"] = self.old["rng"]

    return {"step": step, "spoil": spoil, "make_model": dropout}


def moments_swapped(self: Training, checkpoint: dict[str, Any]) -> None:
    for state in checkpoint["optimizer0"]["state"].values():
        state["exp_avg"], state["exp_avg_sq"] = state["exp_avg_sq"], state["exp_avg"]


def scale_head(self: Training) -> None:
    self.model.head.weight.data.mul_(1.0001)


LOADS = (
    Fault(
        "weights are changed after the load",
        "CK601",
        factory(after_load=scale_head),
        where={"parameter": "head.weight"},
        numbers={"entries": 1},
    ),
    Fault(
        "both moments are swapped in the file",
        "CK601",
        factory(spoil=moments_swapped),
        where={"parameter": "layers.0.weight", "key": "exp_avg", "optimizer": 0},
        numbers={"entries": 16},
    ),
    Fault(
        "the file holds model and optimizer of step 1",
        "CK601",
        factory(**older_parts("model", "optimizer0")),
        names=("32 tensors hold the values of step 1, not of step 3",),
        numbers={"values_of_step": 1, "tensors": 32},
    ),
    Fault(
        "the file of step 1 is loaded, with its schedule and its data",
        "CK601",
        factory(**COSINE, **older_parts("model", "optimizer0", "scheduler0", "data")),
        numbers={"values_of_step": 1, "tensors": 32},
    ),
    Fault(
        "the file of step 1 is loaded, and its generators",
        "CK601",
        factory(**older_with_generators()),
        numbers={"values_of_step": 1},
    ),
    Fault(
        "the file holds the model of step 1, and the position is lost",
        "CK604",
        factory(**older_parts("model"), lose=("data",)),
        numbers={"batch_of_step": 1},
        beside=("CK601",),
    ),
    Fault(
        "the file holds the weights of step 1",
        "CK601",
        factory(**older_parts("model")),
        numbers={"values_of_step": 1, "tensors": 8},
    ),
    Fault(
        "the model stays in evaluation mode",
        "CK601",
        factory(make_model=dropout, after_load=lambda self: self.model.eval()),
        names=("the model itself", "drop"),
    ),
    Fault(
        "a counter of one's own is not restored",
        "CK601",
        factory(Counting, lose=("done",)),
        names=("done.value",),
        numbers={"saved": 3, "loaded": 0, "entries": 1},
    ),
)

TABLE = (*HYPERPARAMETERS, *SCHEDULES, *GENERATORS, *DATA, *REST, *LOADS)


@pytest.mark.parametrize("fault", TABLE, ids=str)
def test_what_a_load_did_not_bring_back_is_the_cause(trial: Trials, fault: Fault):
    fault.check(trial)


def test_a_wrong_schedule_does_not_hide_that_the_decay_changed(trial):
    found = trial(factory(**COSINE, lose=("scheduler0",), after_load=in_every_group(weight_decay=0.8)))
    assert found.code == "CK602"
    assert [one.where.key for one in found.of("CK306")] == ["weight_decay"]


def test_a_rate_that_a_late_constructor_moved_is_not_told_twice(trial):
    late = {"start_factor": 0.1, "total_iters": 10}
    found = trial(
        factory(make_schedulers=schedule(LinearLR, **late), after_load=built_after_the_load(LinearLR, **late))
    )
    assert [one.code for one in found.judgement.findings if one.severity != Severity.INFO] == ["CK602"]


def test_a_rate_that_the_next_step_sets_anyway_is_not_the_cause_of_another_fault(trial):
    def step(self: Training, s: int) -> Any:
        in_every_group(lr=0.01 / s)(self)
        return Training.step(self, s)

    found = trial(factory(step=step, after_load=in_every_group(lr=0.3), lose=("data",)))
    assert found.codes == ["CK604"]


def test_a_place_in_the_schedule_that_the_next_step_sets_anyway_is_not_the_cause_of_another_fault(trial):
    def step(self: Training, s: int) -> Any:
        self.schedulers[0].load_state_dict(self.schedulers[0].state_dict() | {"last_epoch": s - 1, "_step_count": s})
        return Training.step(self, s)

    steady = schedule(LambdaLR, lr_lambda=lambda epoch: 1.0)
    found = trial(factory(make_model=dropout, make_schedulers=steady, step=step, lose=("scheduler0", "torch")))
    assert [one.section for one in found.case.load.entries if one.section == "schedule"]
    assert found.code == "CK603"


def test_lost_gradients_are_told_beside_a_lost_counter(trial):
    def counted(self: Accumulating) -> None:
        self.extra = {"seen": Counter()}

    class Seen(Accumulating):
        def loss_of(self, s: int) -> torch.Tensor:
            self.extra["seen"].value += 1
            return super().loss_of(s)

    found = trial(factory(Seen, finish=counted, lose=("gradients", "seen")))
    assert found.code == "CK613"
    assert found.codes == ["CK613", "CK601"]


def test_gradients_that_the_last_update_used_up_are_not_lost(trial):
    def clipped_by_count(self: Training) -> None:
        self.made += 1
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.01 * self.made)
        Training.update(self)

    found = trial(factory(finish=starts_later, update=clipped_by_count))
    assert found.code == "CK606"
    assert (found.finding.where.step, found.finding.where.stage) == (4, "grad")


def gradients_of_ones(self: Training) -> None:
    for one in self.model.parameters():
        one.grad = torch.ones_like(one)


def test_gradients_that_are_there_after_the_load_alone_reach_the_next_update(trial):
    found = trial(factory(Accumulating, window=3, after_load=gradients_of_ones))
    assert found.codes == ["CK613"]
    assert "were not there when it was saved" in found.finding.message
    assert found.finding.evidence["after_load"] == "nonzero"


def test_gradients_that_are_there_after_the_load_alone_and_are_cleared_are_no_failure(trial):
    def cleared_at_the_end(self: Training) -> None:
        Training.update(self)
        self.optimizers[0].zero_grad()

    found = trial(factory(update=cleared_at_the_end, after_load=gradients_of_ones))
    assert found.judgement.cause is None


def test_a_generator_that_was_put_somewhere_else_was_not_left_where_the_factory_had_put_it(trial):
    found = trial(factory(make_model=dropout, after_load=lambda self: torch.manual_seed(0)))
    assert found.codes == ["CK603"]


def test_one_cycle_lost_names_what_it_moves(trial):
    found = trial(factory(make_schedulers=schedule(OneCycleLR, max_lr=0.1, total_steps=20), lose=("scheduler0",)))
    assert found.code == "CK602"
    assert found.of("CK306") == []


def test_a_counter_that_does_not_explain_which_batch_came_is_not_a_repeated_step(trial):
    found = trial(factory(Counting, spoil=counter_off_by(-1), lose=("data",)))
    assert found.code == "CK604"
    assert found.of("CK612") == []

"""Which schedules and scalers of a script count: those of its optimizers, each once, in the order of making."""

import pytest
import torch
from torch.optim import lr_scheduler

from tests.trace.script.told import listening, train


def chained(optimizer):
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    )


def sequential(optimizer):
    parts = [lr_scheduler.LinearLR(optimizer), lr_scheduler.CosineAnnealingLR(optimizer, 5)]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])


SCHEDULES = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda _: 0.5),
    "plateau": lr_scheduler.ReduceLROnPlateau,
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3),
    "cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, 10),
    "averaging": lambda optimizer: torch.optim.swa_utils.SWALR(optimizer, 0.05),
    "chained": chained,
    "sequential": sequential,
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_counts_once_and_its_parts_not_beside_it(name):
    with listening() as told:
        model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        spare = torch.optim.SGD(other.parameters(), lr=0.1)
        elsewhere = lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=0.1), 1)
        schedule = SCHEDULES[name](optimizer)
        train(model, optimizer)
        assert told.parts == {"schedule": {"": schedule}}
        second = lr_scheduler.ConstantLR(spare)
        assert told.parts == {"schedule": {"[0]": schedule, "[1]": second}}
        assert elsewhere.optimizer not in told.optimizers.all()


def test_scalers_count_where_they_are_in_use():
    with listening() as told:
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler, unused = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", enabled=False)
        for bad in (False, True, False):
            optimizer.zero_grad()
            loss = scaler.scale(model(torch.ones(2, 3)).sum())
            loss.backward()
            if bad:
                model.weight.grad.fill_(float("inf"))
            scaler.step(optimizer)
            scaler.update()
        assert told.parts == {"scaler": {"": scaler}} and not unused.is_enabled()
        assert told.updates == ["before SGD", "after SGD"] * 2


def test_a_schedule_that_is_gone_is_not_kept():
    with listening() as told:
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        for _ in range(3):
            optimizer.__dict__.pop("step", None)
            schedule = lr_scheduler.StepLR(optimizer, 1)
        assert told.parts == {"schedule": {"": schedule}}

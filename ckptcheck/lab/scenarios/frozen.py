"""The ways in which a parameter is meant to be frozen, and what a step makes of it."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from ckptcheck.finding import Json
from ckptcheck.lab.bench import HISTORY, Bench, Twin, UnsuitableError
from ckptcheck.lab.contract import NONE, NONZERO, Row
from ckptcheck.lab.scenarios.modules import SIZE, Branches, any_changed, buffers_of, training


def frozen_parameter(bench: Bench) -> Iterator[Row]:
    """`requires_grad=False`, with a gradient that is none, left from before, or set to zero."""
    for name, leave in _LEFT.items():
        twin = bench.twin()
        leave(twin)
        twin.p.requires_grad_(False)
        yield bench.row(f"frozen-{name}", twin.optimizer, twin.p, twin.update, history=HISTORY)


def _none(twin: Twin) -> None:
    twin.give(p=NONE)


def _stale(twin: Twin) -> None:
    twin.give(p=NONZERO)


def _zeroed(twin: Twin) -> None:
    twin.give(p=NONZERO)
    twin.optimizer.zero_grad(set_to_none=False)
    other = twin.parameters["q"]
    other.grad = (
        torch.ones_like(other).to_sparse()
        if other.grad is not None and other.grad.is_sparse
        else torch.ones_like(other)
    )


_LEFT: dict[str, Callable[[Twin], None]] = {"none": _none, "stale": _stale, "zeroed": _zeroed}


def removed(bench: Bench) -> Iterator[Row]:
    """Taken out of its group with its state left behind: `state_dict()` of torch's own then finds no place for it."""
    twin = bench.twin()
    group = twin.optimizer.param_groups[0]
    twin.give()
    group["params"] = [one for one in group["params"] if one is not twin.p]
    if hasattr(twin.optimizer, "_params"):
        return  # it has listed its parameters once and for all
    row = bench.row("frozen-removed", twin.optimizer, twin.p, twin.update, history=HISTORY,
                    facts=lambda: {"state_dict": _state_dict(twin)})  # fmt: skip
    yield _regrouped(row)


def _regrouped(row: Row) -> Row:
    """The row, where the step took groups that had been changed. UnsuitableError where that alone made it raise."""
    if row.raised:
        raise UnsuitableError(f"it does not take groups that are changed later: {row.raised}")
    return row


def _state_dict(twin: Twin) -> str:
    try:
        twin.optimizer.state_dict()
    except KeyError as error:
        return f"raises {type(error).__name__}"
    return "works"


def learning_rate_zero(bench: Bench) -> Iterator[Row]:
    """In a group of its own with a learning rate of 0, its gradient as before."""
    twin = bench.twin()
    group = twin.optimizer.param_groups[0]
    settings = {key: value for key, value in group.items() if key != "params"}
    if "lr" not in settings or hasattr(twin.optimizer, "_params"):
        return
    group["params"] = [one for one in group["params"] if one is not twin.p]
    twin.optimizer.add_param_group({**settings, "params": [twin.p], "lr": settings["lr"] * 0})
    twin.give()
    yield _regrouped(bench.row("frozen-lr-zero", twin.optimizer, twin.p, twin.update, history=HISTORY))


class _Normed(nn.Module):
    """A linear layer with BatchNorm that will be frozen, and a head that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SIZE[1], SIZE[1]), nn.BatchNorm1d(SIZE[1]))
        self.head = nn.Linear(SIZE[1], SIZE[0], bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The head on the body."""
        result: torch.Tensor = self.head(self.body(x))
        return result


def batchnorm(bench: Bench) -> Iterator[Row]:
    """A frozen module with BatchNorm: its statistics move in train mode, whatever requires_grad says."""
    if bench.subject.sparse or not _takes_vectors(bench):
        return
    for mode in ("train", "eval"):
        own = training(bench, _Normed)
        own.train()
        own.module.body.requires_grad_(False)
        own.module.body.train(mode == "train")
        before = buffers_of(own.module)

        def step(own=own) -> None:  # type: ignore[no-untyped-def]
            own.backward()
            own.update()

        def facts(own=own, before=before) -> dict[str, Json]:  # type: ignore[no-untyped-def]
            return {"buffers_changed": any_changed(before, own.module.buffers())}

        own.optimizer.zero_grad()
        yield bench.row(f"frozen-batchnorm-{mode}", own.optimizer, own.module.body[0].weight, step, history=HISTORY,
                        name="body.0.weight", facts=facts)  # fmt: skip


def _takes_vectors(bench: Bench) -> bool:
    """Whether parameters of one dimension can be trained at all."""
    try:
        bench.optimizer([nn.Parameter(torch.ones(2, device=bench.device))])
    except ValueError:
        return False
    return True


def average(bench: Bench) -> Iterator[Row]:
    """The copy that an average keeps: no optimizer has it, requires_grad is False, and it moves at every update."""
    if bench.subject.sparse:
        return
    own = training(bench, Branches)
    averaged = AveragedModel(own.module)
    averaged.requires_grad_(False)
    own.train()
    averaged.update_parameters(own.module)

    def step() -> None:
        own.train(1)
        averaged.update_parameters(own.module)

    copy: Any = averaged.module
    yield bench.row(
        "frozen-average", own.optimizer, copy.one.weight, step, history=HISTORY, name="one.weight of the average"
    )

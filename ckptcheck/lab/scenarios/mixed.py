"""Mixed precision: bf16 autocast, and a loss scaler with an overflow and without."""

from collections.abc import Iterator
from typing import Any

import torch

from ckptcheck.lab.bench import HISTORY, Bench
from ckptcheck.lab.contract import NONE, NONZERO, ZERO, Row
from ckptcheck.lab.scenarios.modules import Branches, training
from ckptcheck.lab.subject import step_needs_closure


def autocast(bench: Bench) -> Iterator[Row]:
    """Forward in bfloat16, parameters in float32: a branch that the next batch does not use."""
    for set_to_none in (True, False) if not bench.subject.sparse else ():
        own = training(bench, Branches)
        own.autocast = True
        own.train()
        own.module.used = ("other",)
        own.backward(set_to_none=set_to_none)
        yield bench.row("autocast", own.optimizer, own.module.one.weight, own.update, history=HISTORY,
                        name="one.weight", facts={"set_to_none": set_to_none})  # fmt: skip


def scaler(bench: Bench) -> Iterator[Row]:
    """A step through a GradScaler that finds no overflow."""
    for grad in (NONE, ZERO):
        yield from _scaled(bench, "scaler", grad, overflow=False)


def scaler_skipped(bench: Bench) -> Iterator[Row]:
    """A step that a GradScaler leaves out for an overflow elsewhere: nothing moves, whatever the gradient."""
    for grad in (NONE, ZERO, NONZERO):
        yield from _scaled(bench, "scaler-skipped", grad, overflow=True)


def _scaled(bench: Bench, scenario: str, grad: str, *, overflow: bool) -> Iterator[Row]:
    twin = bench.twin()
    if bench.subject.sparse or step_needs_closure(twin.optimizer):
        return
    kind: Any = torch.amp.GradScaler
    own = kind(torch.device(bench.device).type, init_scale=8.0)
    twin.give(p=grad)
    own.scale(torch.ones((), device=bench.device))  # it makes its scale at the first use
    if overflow:
        other = twin.parameters["q"]
        other.grad = torch.full_like(other, float("inf"))

    def step() -> None:
        own.step(twin.optimizer)
        own.update()

    yield bench.row(scenario, twin.optimizer, twin.p, step, history=HISTORY,
                    facts=lambda: {"scale": [8.0, float(own.get_scale())]})  # fmt: skip

"""What goes on while a parameter rests: windows over a resume, schedules, and many zeros in a row."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import torch

from ckptcheck.finding import Json
from ckptcheck.lab.bench import HISTORY, Bench
from ckptcheck.lab.contract import NONE, NONZERO, ZERO, Row
from ckptcheck.lab.snapshot import Snapshot

DRIFTS: Final = (1, 5, 20, 100)
"""Zero-gradient steps after which the way is measured."""


def window_over_a_resume(bench: Bench) -> Iterator[Row]:
    """A resume in an accumulation window whose later half does not reach the parameter: lost, its gradient is none."""
    for kept in (False, True):
        twin = bench.twin()
        twin.give()
        saved, gradient = deepcopy(twin.optimizer.state_dict()), twin.p.grad
        resumed = bench.twin(history=0)
        with torch.no_grad():
            for name, one in resumed.parameters.items():
                one.copy_(twin.parameters[name])
        resumed.optimizer.load_state_dict(saved)
        resumed.catch_up(HISTORY)
        resumed.give(p=NONE)
        if kept:
            resumed.p.grad = gradient
        yield bench.row("accumulation-over-a-resume", resumed.optimizer, resumed.p, resumed.update, history=HISTORY,
                        facts={"gradient_kept": kept})  # fmt: skip


def schedule_goes_on(bench: Bench) -> Iterator[Row]:
    """A schedule and the counters of others go on while one parameter is left out of three steps, and the next."""
    twin = bench.twin()
    if not all("lr" in group for group in twin.optimizer.param_groups) or hasattr(twin.optimizer, "_params"):
        return
    schedule: Any = torch.optim.lr_scheduler.ExponentialLR(twin.optimizer, 0.5)
    rates: list[Json] = [float(twin.optimizer.param_groups[0]["lr"])]
    counters = [_counter(twin, "p"), _counter(twin, "q")]

    def step() -> None:
        twin.update()
        schedule.step()

    for _ in range(3):
        twin.give(p=NONE)
        step()
    twin.give(p=NONE)

    def facts() -> dict[str, Json]:
        told: dict[str, Json] = {"lr": [*rates, float(twin.optimizer.param_groups[0]["lr"])]}
        now = [_counter(twin, "p"), _counter(twin, "q")]
        return (
            told if None in now else {**told, "own_steps": [counters[0], now[0]], "other_steps": [counters[1], now[1]]}
        )

    yield bench.row("schedule-goes-on", twin.optimizer, twin.p, step, history=HISTORY, facts=facts)


def _counter(twin: Any, name: str) -> float | None:
    return Snapshot.of(twin.optimizer, twin.parameters[name]).counter()


def drift(bench: Bench) -> Iterator[Row]:
    """How far zeros carry a parameter, in learning rates: after 1, 5, 20 and 100 steps."""
    twin = bench.twin()
    rate = float(twin.optimizer.param_groups[0].get("lr", 0.0))
    begun = twin.p.detach().clone()
    ways: dict[str, Json] = {}

    def steps() -> None:
        for made in range(1, DRIFTS[-1] + 1):
            if made > 1:
                twin.give(p=ZERO, q=NONZERO)
            twin.update()
            if made in DRIFTS:
                ways[str(made)] = float((twin.p.detach() - begun).abs().max()) / rate if rate else None

    twin.give(p=ZERO)
    yield bench.row("drift", twin.optimizer, twin.p, steps, history=HISTORY, facts=lambda: {"drift_in_lr": ways})

"""A gradient that is none, zero or not, with a history and without, and with a learning rate of 0."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.lab.bench import HISTORY, Bench, Twin
from ckptcheck.lab.contract import NONE, NONZERO, ZERO, Row

BEFORE_RESTS: Final = 7
"""Steps with gradients before: a prime, so that what is done every fifth step has not just been done."""
RESTS: Final = 40
"""Steps without a gradient: what an optimizer does every tenth or twentieth step shows in them."""


def with_history(bench: Bench) -> Iterator[Row]:
    """Twins that trained alike: one gets none, one zeros, one a gradient as before."""
    for grad in (NONE, ZERO, NONZERO):
        yield _one(bench, "history", bench.twin(), grad, HISTORY)


def without_history(bench: Bench) -> Iterator[Row]:
    """Twins that never stepped."""
    for grad in (NONE, ZERO):
        yield _one(bench, "no-history", bench.twin(history=0), grad, 0)


def learning_rate_zero(bench: Bench) -> Iterator[Row]:
    """Twins that trained alike, and whose learning rate was then set to 0."""
    for grad in (NONE, ZERO):
        twin = bench.twin()
        if not all("lr" in group for group in twin.optimizer.param_groups):
            return
        for group in twin.optimizer.param_groups:
            group["lr"] = group["lr"] * 0  # a tensor stays one
        yield _one(bench, "lr-zero", twin, grad, HISTORY)


def rests_for_long(bench: Bench) -> Iterator[Row]:
    """A parameter that trained, and then has no gradient for many steps in which another one trains on."""
    twin = bench.twin(BEFORE_RESTS)
    twin.give(p=NONE)

    def steps() -> None:
        twin.update()
        twin.train(RESTS - 1, p=NONE)

    yield bench.row("rests", twin.optimizer, twin.p, steps, history=BEFORE_RESTS, facts={"steps": RESTS})


def _one(bench: Bench, scenario: str, twin: Twin, grad: str, history: int) -> Row:
    twin.give(p=grad)
    return bench.row(scenario, twin.optimizer, twin.p, twin.update, history=history)

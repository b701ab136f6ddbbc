"""Optimizers that take turns: gradients that lie there while another one steps, and gradients that are gathered."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.rules.trainings import Accumulating, Training, TwoModels, factory
from tests.rules.trials import Trials


class Turns(TwoModels):
    """Model a is trained in every third step, b in the others; each clears its own gradients before its backward."""

    def turn(self, s: int) -> str:
        return "a" if s % 3 == 0 else "b"

    def step(self, s: int) -> Any:
        name = self.turn(s)
        optimizer = self.optimizers["ab".index(name)]
        optimizer.zero_grad()
        inputs, targets = self.data.next()
        loss = (self.model[name](inputs) - targets).square().mean()
        loss.backward()
        self.finish_update(optimizer)
        return loss

    def finish_update(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()


class Gathering(Turns):
    """b is trained in every step, a from the sum over four steps, which the checkpoint does not carry."""

    def step(self, s: int) -> Any:
        inputs, targets = self.data.next()
        losses = {name: (one(inputs) - targets).square().mean() for name, one in self.model.items()}
        self.optimizers[1].zero_grad()
        sum(losses.values()).backward()
        self.optimizers[1].step()
        if s % 4 == 0:
            self.optimizers[0].step()
            self.optimizers[0].zero_grad()
        return losses


class Polluting(Turns):
    """The backward of a reaches b too, whose next own step clears that."""

    def step(self, s: int) -> Any:
        name = self.turn(s)
        optimizer = self.optimizers["ab".index(name)]
        optimizer.zero_grad()
        inputs, targets = self.data.next()
        loss = sum((one(inputs) - targets).square().mean() for one in self.model.values())
        loss.backward()
        optimizer.step()
        return loss


def clips_over_both(self: Turns, optimizer: torch.optim.Optimizer) -> None:
    both = [one.grad for model in self.model.values() for one in model.parameters() if one.grad is not None]
    for one in optimizer.param_groups[0]["params"]:
        one.grad.div_(10 * nn.utils.get_total_norm(both))
    optimizer.step()


def never_cleared(self: Turns, s: int) -> Any:
    """Each backward of a adds to what is there from the start of the training."""
    name = self.turn(s)
    if name == "b":
        self.optimizers[1].zero_grad()
    inputs, targets = self.data.next()
    (self.model[name](inputs) - targets).square().mean().backward()
    self.optimizers["ab".index(name)].step()


def clears_to_zero(self: Turns, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


CLEARED = {
    "the next update of the other is seen": (factory(Turns), {"at": 4, "steps": 8}),
    "it is not": (factory(Turns), {"at": 4, "steps": 5}),
    "the save follows its update": (factory(Turns), {"at": 3, "steps": 7}),
    "gradients are cleared to zero, and none follows": (
        factory(Turns, finish_update=clears_to_zero), {"at": 4, "steps": 5}
    ),
    "the backward of one reaches the other": (
        factory(Polluting, turn=lambda self, s: "b" if s % 3 == 0 else "a"), {"at": 4, "steps": 8}
    ),
}  # fmt: skip

LOST = {
    "gathered for an update that is seen": (factory(Gathering), {"at": 6, "steps": 9}, "CK613"),
    "gathered for an update that is not": (factory(Gathering), {"at": 5, "steps": 7}, "CK613"),
    "gathered, and the generators beside": (
        factory(Gathering, lose=("data",)), {"at": 6, "steps": 9}, "CK604"
    ),
    "one optimizer, and a window that stays open": (
        factory(Accumulating, lose=("gradients",)), {"at": 5, "steps": 7}, "CK613"
    ),
    "never cleared": (factory(Turns, step=never_cleared), {"at": 4, "steps": 8}, "CK613"),
    "read by a norm over both": (factory(Turns, finish_update=clips_over_both), {"at": 4, "steps": 8}, "CK606"),
}  # fmt: skip


@pytest.mark.parametrize(("made", "options"), CLEARED.values(), ids=CLEARED)
def test_what_lies_there_while_another_optimizer_steps_is_no_failure(
    trial: Trials, made: Callable[..., Any], options: dict[str, int]
):
    found = trial(made, **options)
    assert found.code is None, found.finding.message
    assert found.case.goes_on_exactly
    assert found.case.trajectory.differences == ()
    assert found.codes == ["CK613"], "it is told as without effect"


@pytest.mark.parametrize(("made", "options", "code"), LOST.values(), ids=LOST)
def test_what_an_update_reads_or_may_still_read_is_lost(
    trial: Trials, made: Callable[..., Any], options: dict[str, int], code: str
):
    found = trial(made, **options)
    assert found.code == code
    if code == "CK606":
        beside = {one.item.name[0] for one in found.case.trajectory.at_first_stage()}
        assert beside == {"a", "b"}, "what was read with it is told beside it"
    if code == "CK613":
        assert found.finding.where.stage == "load"
        assert found.case.trajectory.first.step == options["at"] + 1


def test_a_fault_that_comes_later_is_not_laid_to_what_lies_there(trial: Trials):
    def drifts(self: Turns, s: int) -> Any:
        self.made = getattr(self, "made", 0) + 1
        if s == 8:
            with torch.no_grad():
                self.model["b"].head.bias.add_(self.made)
        return Turns.step(self, s)

    found = trial(factory(Turns, step=drifts), at=4, steps=9)
    assert found.code != "CK613"
    assert (found.finding.where.step, found.finding.where.stage) == (8, "loss")


def test_a_fault_in_the_step_in_which_they_lie_there_has_its_own_name(trial: Trials):
    found = trial(factory(Turns, lose=("optimizer1",)), at=4, steps=8)
    assert found.code == "CK201"
    assert found.codes.count("CK613") == 0
    assert found.case.trajectory.first.stage == "state"


def test_a_gradient_that_differs_beside_them_has_its_own_name(trial: Trials):
    def scaled(self: Turns, optimizer: torch.optim.Optimizer) -> None:
        self.made = getattr(self, "made", 0) + 1
        for one in optimizer.param_groups[0]["params"]:
            one.grad.mul_(self.made)
        optimizer.step()

    found = trial(factory(Turns, finish_update=scaled), at=4, steps=8)
    assert found.code == "CK606"
    assert found.finding.where.step == 5


def test_one_that_trains_itself_in_every_step_is_as_before(trial: Trials):
    assert trial(factory(Training)).codes == ["CK613"]

"""A second fault beside what the load broke, and the words for what no optimizer and no scheduler did."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from ckptcheck.finding import Severity
from tests.rules.trainings import WIDTH, Averaged, Training, factory
from tests.rules.trials import Trials


def own_batches(self: Training) -> None:
    """Batches of a generator that is not declared; from the third of a process on they are others."""
    self.made = 0


def from_own_batches(self: Training, s: int) -> torch.Tensor:
    self.made += 1
    number = s if self.made < 3 or s < 6 else s - self.back
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(6, WIDTH, generator=generator)
    return functional.mse_loss(self.model(inputs), torch.zeros(6, 2))


def stale_moments(self: Training) -> None:
    for state in self.optimizers[0].state.values():
        state["exp_avg"].zero_()


def resumed_batches(self: Training) -> None:
    self.back = self.back_after_load
    stale_moments(self)


OWN = {"finish": own_batches, "loss_of": from_own_batches, "back": 0, "after_load": resumed_batches}


@pytest.mark.parametrize(
    ("back", "severity", "said"),
    [
        (-50, Severity.WARNING, "unless the inputs are made by what differs before (a GAN, a policy)"),
        (5, Severity.ERROR, "step 6 saw the batch of step 1; a second fault"),
        (0, None, ""),
    ],
)
def test_other_inputs_are_told_beside_what_the_load_broke(
    trial: Trials, back: int, severity: Severity | None, said: str
) -> None:
    found = trial(factory(**OWN, back_after_load=back))
    assert found.code == "CK601"
    beside = found.of("CK604")
    assert [one.severity for one in beside] == ([severity] if severity else [])
    assert all(said in one.message and one.where.step == 6 for one in beside)


def test_what_the_load_broke_in_the_data_explains_later_inputs(trial: Trials) -> None:
    found = trial(factory(lose=("data",), after_load=stale_moments))
    assert [one.severity for one in found.of("CK604")] == [Severity.ERROR]
    assert "second fault" not in found.of("CK604")[0].message


def written_by_hand(self: Training, s: int) -> Any:
    loss = Training.step(self, s)
    self.count += 1
    if self.count == 2:
        with torch.no_grad():
            self.model.head.bias.add_(1.0)
    return loss


def without_the_head(self: Training) -> list[torch.optim.Optimizer]:
    return [torch.optim.AdamW(self.model.layers.parameters(), lr=0.01)]


@pytest.mark.parametrize(("held", "said"), [(False, "no optimizer has it"), (True, "the update of head.bias differs")])
def test_a_weight_written_by_the_step_is_not_blamed_on_an_optimizer_without_it(
    trial: Trials, held: bool, said: str
) -> None:
    parts: dict[str, Any] = {} if held else {"make_optimizers": without_the_head}
    found = trial(factory(count=0, step=written_by_hand, **parts))
    assert (found.code, found.finding.where.step) == ("CK607", 5)
    assert said in found.finding.message
    assert ("its state_dict" in found.finding.fix) is held


def alias(self: Training) -> None:
    self.ema.averages["head.bias"] = self.model.head.bias.detach()


def other_average(self: Training) -> None:
    self.ema.averages["head.bias"].add_(1.0)


@pytest.mark.parametrize(("change", "shared"), [(alias, {"averages.head.bias": "head.bias"}), (other_average, None)])
def test_an_average_that_became_a_live_weight_in_the_load_is_told(trial: Trials, change: Any, shared: Any) -> None:
    found = trial(factory(Averaged, after_load=change))
    assert found.code == "CK208"
    assert found.finding.evidence.get("shared") == shared
    assert ("shares memory with the live weights" in found.finding.message) is bool(shared)
    assert ("clone" if shared else "compare what your load puts into the EMA") in found.finding.fix


def test_an_average_that_shares_memory_in_both_runs_is_not_told(trial: Trials) -> None:
    def finish(self: Training) -> None:
        Averaged.finish(self)
        alias(self)

    assert trial(factory(Averaged, finish=finish)).code is None

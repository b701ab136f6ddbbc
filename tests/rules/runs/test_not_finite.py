"""CK501 over two runs: what is NaN in both."""

from typing import Any

import pytest
import torch

from ckptcheck.finding import Severity
from tests.rules.trainings import Scaled, Training, TwoModels, factory
from tests.rules.trials import Trial, Trials

NAN, INF = float("nan"), float("inf")


def told(found: Trial) -> list[tuple[int | None, str | None, Severity]]:
    return [(one.where.step, one.where.stage, one.severity) for one in found.of("CK501")]


def spoils(at: int, value: float, *names: str) -> Any:
    """Sets the first element of some parameters, of all where none is named, after the update of a step."""

    def step(self: Training, s: int) -> Any:
        loss = Training.step(self, s)
        if s == at:
            with torch.no_grad():
                for name, one in self.model.named_parameters():
                    if name in names or not names:
                        one.view(-1)[0] = value
        return loss

    return step


def test_where_all_is_nan_before_the_load_nothing_can_be_told(trial: Trials):
    found = trial(factory(step=spoils(2, NAN), lose=("data",)), at=4, steps=6)
    assert found.code == "CK604", "what enters the model still shows"
    found = trial(factory(step=spoils(2, NAN)), at=4, steps=6)
    assert found.code is None
    assert found.case.non_finite.hides_all
    assert told(found) == [(2, "param", Severity.ERROR)]
    said = found.of("CK501")[0].message
    assert said.startswith(
        "from step 2 on 8 of 8 parameters and 16 state tensors are not finite, in both runs: nothing"
    )


def test_where_it_comes_after_a_compared_step_it_is_a_warning(trial: Trials):
    later = trial(factory(step=spoils(5, NAN)), at=3, steps=6)
    assert not later.case.non_finite.hides_all
    assert told(later) == [(5, "param", Severity.WARNING)]


def test_a_single_infinity_is_a_warning(trial: Trials):
    def masked(self: Training) -> None:
        self.model.register_parameter("mask", torch.nn.Parameter(torch.tensor([0.0, -INF])))

    found = trial(factory(finish=masked))
    assert found.code is None
    assert told(found) == [(1, "param", Severity.WARNING)]
    assert "1 of 9 parameters are not finite" in found.of("CK501")[0].message


def test_what_is_frozen_and_finite_does_not_count_as_compared(trial: Trials):
    def half(self: TwoModels) -> None:
        self.model["a"].requires_grad_(False)

    def step(self: TwoModels, s: int) -> Any:
        loss = Training.step(self, s)
        if s == 1:
            with torch.no_grad():
                for one in self.model["b"].parameters():
                    one.fill_(NAN)
        return loss

    found = trial(factory(TwoModels, finish=half, step=step))
    assert found.case.non_finite.hides_all
    assert "8 of 16 parameters" in found.of("CK501")[0].message


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_a_loss_that_is_not_finite_at_one_step_is_a_warning(trial: Trials, value: float, kind: Any):
    found = trial(
        factory(step=lambda self, s: Training.step(self, s) if s != 5 else (Training.step(self, s), kind(value))[1])
    )
    assert found.code is None
    assert told(found) == [(5, "loss", Severity.WARNING)]


def test_an_overflow_that_a_scaler_skips_is_silent(trial: Trials):
    def overflows(self: Scaled, s: int) -> Any:
        self.optimizers[0].zero_grad()
        loss = self.loss_of(s) * (INF if s in (2, 4) else 1.0)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizers[0])
        self.scaler.update()
        return loss

    found = trial(factory(Scaled, step=overflows))
    assert found.code is None
    assert told(found) == []


def test_great_second_moments_are_finite(trial: Trials):
    found = trial(factory(loss_of=lambda self, s: Training.loss_of(self, s) * 1e13))
    norm = [one.norm for item, one in found.reference.samples(5, "step").items() if item.key == "exp_avg_sq"]
    assert INF in norm, "the squares of the squares overflow"
    assert told(found) == []


def test_a_clean_run_says_nothing_and_is_judged(trial: Trials):
    found = trial(factory())
    assert told(found) == []
    assert "CK501" not in {one.code for one in found.judgement.not_judged}

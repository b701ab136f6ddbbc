"""CK5: values that came back through a narrower dtype, and counters that are off."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from ckptcheck.finding import Severity
from tests.rules.faults import Fault
from tests.rules.trainings import Averaged, Training, adam, factory
from tests.rules.trials import Trials


def moments_through(dtype: torch.dtype) -> Any:
    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        for state in checkpoint["optimizer0"]["state"].values():
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = state[key].to(dtype)

    return spoil


def weights_through(dtype: torch.dtype) -> Any:
    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        checkpoint["model"] = {name: value.to(dtype) for name, value in checkpoint["model"].items()}

    return spoil


def average_through_bf16(self: Training, checkpoint: dict[str, Any]) -> None:
    averages = checkpoint["ema"]["averages"]
    checkpoint["ema"]["averages"] = {name: value.bfloat16() for name, value in averages.items()}


def cast_model(self: Training) -> None:
    self.model.bfloat16()
    self.optimizers[0] = adam(self.model)


def loss_in_any_dtype(self: Training, s: int) -> torch.Tensor:
    inputs, targets = self.data.next()
    return functional.mse_loss(self.model(inputs.to(next(self.model.parameters()).dtype)).float(), targets)


def counters_to_zero(self: Training) -> None:
    for state in self.optimizers[0].state.values():
        state["step"].zero_()


def one_counter_back(self: Training) -> None:
    self.optimizers[0].state[self.model.head.weight]["step"] -= 1


def head_and_layers(self: Training) -> list[torch.optim.Optimizer]:
    return [adam(self.model.head), adam(self.model.layers)]


def second_counters_to_zero(self: Training) -> None:
    for state in self.optimizers[1].state.values():
        state["step"].zero_()


FAULTS = (
    *(
        Fault(
            f"moments are saved as {name}",
            "CK504",
            factory(spoil=moments_through(getattr(torch, name))),
            where={"parameter": "layers.0.weight", "key": "exp_avg", "optimizer": 0},
            names=(f"rounded to {name}", "layers.2.bias.exp_avg_sq"),
            numbers={"rounded_through": name, "count": 14},
            severity=Severity.WARNING,
            beside=("CK601",),
        )
        for name in ("bfloat16", "float16")
    ),
    Fault(
        "weights are saved as float16",
        "CK504",
        factory(spoil=weights_through(torch.float16)),
        where={"parameter": "layers.0.weight"},
        names=("rounded to float16", "head.weight"),
        severity=Severity.WARNING,
        beside=("CK601",),
    ),
    Fault(
        "the average is saved as bfloat16",
        "CK504",
        factory(Averaged, spoil=average_through_bf16),
        where={"parameter": "averages.layers.0.weight"},
        numbers={"rounded_through": "bfloat16"},
        severity=Severity.WARNING,
        beside=("CK208",),
    ),
    Fault(
        "the model is cast after the load",
        "CK504",
        factory(after_load=cast_model, loss_of=loss_in_any_dtype),
        where={"parameter": "layers.0.weight"},
        numbers={"rounded_through": "bfloat16", "count": 8},
        severity=Severity.WARNING,
        beside=("CK201",),
    ),
    Fault(
        "all counters are set to 0",
        "CK505",
        factory(after_load=counters_to_zero),
        where={"optimizer": 0, "parameter": "layers.0.weight", "key": "step"},
        names=("8 parameters",),
        numbers={"saved": 3.0, "loaded": 0.0, "off_by": -3.0},
    ),
    Fault(
        "the counter of one parameter is one back",
        "CK505",
        factory(after_load=one_counter_back),
        where={"parameter": "head.weight", "key": "step"},
        numbers={"saved": 3.0, "loaded": 2.0, "off_by": -1.0, "parameters": ["head.weight"]},
    ),
    Fault(
        "the counters of the second optimizer are set to 0",
        "CK505",
        factory(make_optimizers=head_and_layers, after_load=second_counters_to_zero),
        where={"optimizer": 1, "parameter": "layers.0.weight", "key": "step"},
        numbers={"saved": 3.0, "loaded": 0.0, "off_by": -3.0},
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_numbers_that_a_checkpoint_changed_are_told(trial: Trials, fault: Fault):
    fault.check(trial)


def test_a_value_or_two_that_fit_a_narrower_dtype_by_chance_are_not_narrowed(trial):
    def change_bias(self: Training) -> None:
        self.model.head.bias.data.copy_(self.model.head.bias.data.bfloat16())

    found = trial(factory(after_load=change_bias))
    assert found.codes == ["CK601"]


def test_weights_with_noise_are_not_narrowed(trial):
    def add_noise(self: Training) -> None:
        self.model.layers[0].weight.data.add_(1e-6 * torch.arange(64.0).reshape(8, 8).sin())

    found = trial(factory(after_load=add_noise))
    assert found.codes == ["CK601"]


def test_moments_that_are_zeroed_are_not_narrowed_though_every_dtype_holds_zero(trial):
    def zero(self: Training) -> None:
        for key in ("exp_avg", "exp_avg_sq"):
            self.optimizers[0].state[self.model.layers[1].weight][key].zero_()

    assert trial(factory(after_load=zero)).codes == ["CK601"]


def test_second_moments_that_underflow_beside_others_that_are_rounded_are_narrowed(trial):
    def loss_of(self: Training, s: int) -> torch.Tensor:
        inputs, targets = self.data.next()
        self.model.layers[1].weight.register_hook(lambda gradient: gradient * 1e-6)
        return functional.mse_loss(self.model(inputs), targets)

    found = trial(factory(spoil=moments_through(torch.float16), loss_of=loss_of))
    (narrowed,) = found.of("CK504")
    assert narrowed.evidence["rounded_through"] == "float16"
    assert "layers.1.weight.exp_avg_sq" in narrowed.evidence["tensors"]

"""CK2: what a load did not bring back."""

from typing import Any

import pytest
import torch

from ckptcheck.finding import Severity
from tests.rules.faults import Fault
from tests.rules.trainings import Averaged, Ema, Training, TwoModels, adam, factory, momentum
from tests.rules.trials import Trials

EIGHT = (
    "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias",
    "layers.2.weight", "layers.2.bias", "head.weight", "head.bias",
)  # fmt: skip


def without(*keys: str, place: int = 4) -> Any:
    """A save that drops keys of one parameter's state, or all of it."""

    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["optimizer0"]["state"]
        for key in keys:
            del state[place][key]
        if not keys:
            del state[place]

    return spoil


def without_all(key: str) -> Any:
    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        for state in checkpoint["optimizer0"]["state"].values():
            del state[key]

    return spoil


def momentum_is_none(self: Training, checkpoint: dict[str, Any]) -> None:
    checkpoint["optimizer0"]["state"][4]["momentum_buffer"] = None


def with_momentum(self: Training) -> list[torch.optim.Optimizer]:
    return [momentum(self.model)]


def with_amsgrad(self: Training) -> list[torch.optim.Optimizer]:
    return [adam(self.model, amsgrad=True)]


def with_sums(self: Training) -> list[torch.optim.Optimizer]:
    """Adagrad makes all of its state when it is built."""
    return [torch.optim.Adagrad(self.model.parameters(), lr=0.01)]


def state_under_names(self: Training) -> None:
    state = self.optimizers[0].state
    for name, parameter in self.model.named_parameters():
        state[name] = state.pop(parameter)


class EmaWithoutCounter(Ema):
    """Its decay warms up by a counter that its state_dict does not hold."""

    def state_dict(self) -> dict[str, Any]:
        return {"averages": self.averages}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict({"updates": 0, **state})


def hidden_counter(self: Training) -> None:
    self.ema = EmaWithoutCounter(self.model)


def no_updates(self: Training, checkpoint: dict[str, Any]) -> None:
    checkpoint["ema"]["updates"] = 0


FAULTS = (
    Fault(
        "the optimizer is not loaded",
        "CK201",
        factory(lose=("optimizer0",)),
        where={"optimizer": 0, "parameter": "layers.0.weight"},
        names=("AdamW", *EIGHT),
        numbers={"missing": 8},
    ),
    Fault(
        "the second of two optimizers is not loaded",
        "CK201",
        factory(TwoModels, lose=("optimizer1",)),
        where={"optimizer": 1, "parameter": "b.layers.0.weight"},
        names=("SGD", "b.head.bias"),
        numbers={"missing": 8},
    ),
    Fault(
        "optimizer and generators are not loaded",
        "CK201",
        factory(lose=("optimizer0", "torch", "python", "numpy")),
    ),
    Fault(
        "the state that the optimizer made when it was built stays as it is",
        "CK201",
        factory(make_optimizers=with_sums, lose=("optimizer0",)),
        where={"optimizer": 0, "parameter": "layers.0.weight"},
        names=("Adagrad", "as the factory made it"),
        numbers={"missing": 8},
    ),
    Fault(
        "the load puts state under the names of parameters, where no update looks",
        "CK201",
        factory(after_load=state_under_names),
        where={"optimizer": 0, "parameter": "layers.0.weight"},
        numbers={"missing": 8},
        beside=("CK601",),  # which tells what there is in their place
    ),
    Fault(
        "the state of one parameter is not in the file",
        "CK202",
        factory(spoil=without()),
        where={"optimizer": 0, "parameter": "layers.2.weight"},
        numbers={"keys": ["exp_avg", "exp_avg_sq", "step"]},
    ),
    Fault(
        "exp_avg_sq of one parameter is not in the file, and the next step raises",
        "CK203",
        factory(spoil=without("exp_avg_sq")),
        where={"optimizer": 0, "parameter": "layers.2.weight", "key": "exp_avg_sq"},
        numbers={"missing_keys": ["exp_avg_sq"], "raised": "KeyError: 'exp_avg_sq' (in step 4)"},
    ),
    Fault(
        "max_exp_avg_sq of all parameters is not in the file",
        "CK203",
        factory(make_optimizers=with_amsgrad, spoil=without_all("max_exp_avg_sq")),
        where={"parameter": "layers.0.weight", "key": "max_exp_avg_sq"},
    ),
    Fault(
        "the momentum of one parameter is not in the file, and restarts silently",
        "CK202",  # it was the only key: the parameter has no state at all
        factory(make_optimizers=with_momentum, spoil=without("momentum_buffer")),
        where={"parameter": "layers.2.weight"},
        numbers={"keys": ["momentum_buffer"]},
    ),
    Fault(
        "the momentum of one parameter is None in the file, and restarts silently",
        "CK203",
        factory(make_optimizers=with_momentum, spoil=momentum_is_none),
        where={"parameter": "layers.2.weight", "key": "momentum_buffer"},
        numbers={"missing_keys": ["momentum_buffer"]},
    ),
    Fault(
        "the average is not loaded",
        "CK208",
        factory(Averaged, lose=("ema",)),
        where={"key": "updates"},
        names=("9 EMA entries", "averages.head.bias"),
        numbers={"saved": 3, "loaded": 0},
        severity=Severity.WARNING,
    ),
    Fault(
        "the counter of the average is off",
        "CK208",
        factory(Averaged, spoil=no_updates),
        where={"key": "updates"},
        numbers={"entries": ["updates"], "saved": 3, "loaded": 0},
        severity=Severity.WARNING,
    ),
    Fault(
        "the average warms up by a counter that nobody saves",
        "CK208",
        factory(Averaged, finish=hidden_counter),
        where={"step": 4, "stage": "ema", "key": "averages.head.bias"},
        severity=Severity.WARNING,
        confidence="likely",
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_load_that_leaves_something_out_is_told_by_name(trial: Trials, fault: Fault):
    fault.check(trial)


def test_state_that_one_parameter_lacks_is_not_the_absence_of_all(trial):
    found = trial(factory(spoil=without()))
    assert found.codes == ["CK202"]
    assert [one.where.parameter for one in found.judgement.findings] == ["layers.2.weight"]


def test_each_parameter_that_lacks_its_state_gets_a_finding(trial):
    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        for place in (1, 6):
            del checkpoint["optimizer0"]["state"][place]

    found = trial(factory(spoil=spoil))
    assert [one.where.parameter for one in found.of("CK202")] == ["layers.0.bias", "head.weight"]


def test_a_parameter_that_lacks_all_keys_of_its_state_is_told_once(trial):
    found = trial(factory(TwoModels, lose=("optimizer0", "optimizer1")))
    assert [(one.code, one.where.optimizer) for one in found.judgement.findings] == [("CK201", 0), ("CK201", 1)]


def test_gradients_that_no_update_shows_are_not_what_differs(trial):
    def update(self: Training) -> None:
        self.optimizers[0].step()
        self.optimizers[0].zero_grad()

    def build_anew(self: Training) -> None:
        self.optimizers = [adam(self.model)]

    found = trial(factory(update=update, after_load=build_anew))
    assert found.code == "CK612"
    assert found.of("CK606") == []
    assert "run.optimizer" in found.of("CK612")[0].fix

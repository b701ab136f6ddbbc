"""CK4: freeze contracts held step by step, and freeze sets that a load changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from ckptcheck.finding import Severity
from ckptcheck.rules.runs.judge import judge
from tests.rules.faults import Fault
from tests.rules.trainings import Freezing, Thawing, Training, factory, momentum
from tests.rules.trials import Factory, Trials

LAYERS = tuple(f"layers.{place}.{kind}" for place in range(3) for kind in ("weight", "bias"))
HOLD = {"layers.*": "hold"}


class ZeroGradients(Freezing):
    """Freezes by requires_grad and leaves gradients at zero, as `zero_grad(set_to_none=False)` does."""

    def freeze_layers(self) -> None:
        self.model.layers.requires_grad_(False)

    def step(self, s: int) -> Any:
        if s == self.when:
            self.freeze_layers()
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=False)
        loss = self.loss_of(s)
        loss.backward()
        self.update()
        return loss


class StaleGradients(ZeroGradients):
    """Freezes and clears the gradients of what is trained only."""

    def step(self, s: int) -> Any:
        if s == self.when:
            self.freeze_layers()
        for one in self.model.parameters():
            if one.requires_grad:
                one.grad = None
        loss = self.loss_of(s)
        loss.backward()
        self.update()
        return loss


class NotReally(Freezing):
    """Says that it freezes and does not."""

    def freeze_layers(self) -> None:
        pass


class LeftOut(Training):
    """The layers are in no group."""

    def make_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.AdamW(self.model.head.parameters(), lr=0.01)]

    def finish(self) -> None:
        self.model.layers.requires_grad_(False)


def with_momentum(self: Training) -> list[torch.optim.Optimizer]:
    return [momentum(self.model)]


def moves_by_hand(self: Freezing, s: int) -> Any:
    loss = Freezing.step(self, s)
    if s == 4:
        with torch.no_grad():
            self.model.layers[0].bias.add_(1)
    return loss


def resets(self: Freezing) -> None:
    Freezing.freeze_layers(self)
    for one in self.model.layers.parameters():
        self.optimizers[0].state.pop(one, None)


@dataclass(frozen=True)
class Breach:
    """A training that breaks a contract, and the findings that say so: {code: (severity, first step, parameters)}."""

    mistake: str
    training: Factory
    freeze: Mapping[str, str]
    found: Mapping[str, tuple[Severity, int, int]]
    cause: str | None
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.mistake


ERROR, WARNING = Severity.ERROR, Severity.WARNING

BREACHES = (
    Breach(
        "zero gradients carry the momentum on",
        factory(ZeroGradients, make_optimizers=with_momentum),
        HOLD,
        {"CK401": (ERROR, 2, 6), "CK402": (ERROR, 2, 6), "CK403": (ERROR, 2, 6)},
        "CK401",
        {"contract": "hold", "pattern": "layers.*", "gradient": "zero", "moved": "value"},
    ),
    Breach(
        "zero gradients decay weights and moments",
        factory(ZeroGradients),
        HOLD,
        {"CK401": (ERROR, 2, 6), "CK402": (ERROR, 2, 6), "CK403": (ERROR, 2, 6)},
        "CK401",
    ),
    Breach(
        "a stale gradient goes on moving them",
        factory(StaleGradients),
        HOLD,
        {"CK401": (ERROR, 2, 6), "CK402": (ERROR, 2, 6), "CK403": (ERROR, 2, 6)},
        "CK401",
        {"gradient": "nonzero"},
    ),
    Breach(
        "they are trained all the same",
        factory(NotReally),
        {"layers.0.*": "hold"},
        {"CK401": (ERROR, 1, 2), "CK402": (ERROR, 1, 2), "CK403": (ERROR, 1, 2)},
        "CK401",
    ),
    Breach(
        "one is moved by hand in step 4",
        factory(Freezing, step=moves_by_hand),
        {"layers.*": "no-update"},
        {"CK401": (ERROR, 4, 1)},
        "CK401",
        {"gradient": "none", "contract": "no-update"},
    ),
    Breach(
        "under no-update the state may change and the value not",
        factory(ZeroGradients, make_optimizers=with_momentum),
        {"layers.0.*": "no-update"},
        {"CK401": (ERROR, 2, 2), "CK403": (ERROR, 2, 2)},
        "CK401",
    ),
    Breach(
        "they get gradients under no-grad",
        factory(NotReally),
        {"layers.0.*": "no-grad"},
        {"CK403": (ERROR, 1, 2)},
        "CK403",
        {"gradient": "nonzero", "read": True},
    ),
    Breach(
        "they are members under removed",
        factory(Freezing),
        {"layers.0.*": "removed"},
        {"CK403": (ERROR, 2, 2)},
        "CK403",
        {"contract": "removed"},
    ),
    Breach(
        "their state is kept under reset",
        factory(Freezing),
        {"layers.0.*": "reset"},
        {"CK402": (ERROR, 2, 2)},
        "CK402",
        {"contract": "reset", "moved": "step"},
    ),
)


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_broken_contract_is_told_at_the_first_step_that_breaks_it(trial: Trials, breach: Breach):
    case = trial(breach.training).breached(breach.freeze)[0]
    judgement = judge(case)
    found: dict[str, list[Any]] = {}
    for one in judgement.findings:
        found.setdefault(one.code, []).append(one)
    told = {code: (ones[0].severity, ones[0].where.step, len({one.where.parameter for one in ones}))
            for code, ones in found.items()}  # fmt: skip
    assert told == dict(breach.found)
    assert judgement.cause.code == breach.cause
    assert judgement.cause.confidence == "certain"
    first = found[breach.cause][0]
    assert {key: first.evidence[key] for key in breach.numbers} == dict(breach.numbers)
    assert "reference" in first.message


@pytest.mark.parametrize(
    ("training", "freeze"),
    [
        (factory(Freezing), HOLD),
        (factory(Freezing), {"layers.*": "no-grad"}),
        (factory(Freezing, make_optimizers=with_momentum), HOLD),
        (factory(Freezing, freeze_layers=resets), {"layers.*": "reset"}),
        (factory(LeftOut), {"layers.*": "removed"}),
        (factory(LeftOut), HOLD),
        (factory(Thawing), HOLD),
        (factory(ZeroGradients, make_optimizers=with_momentum), {"layers.*": "hold", "layers.[012].*": "removed"}),
    ],
    ids=["hold", "no-grad", "momentum", "reset", "removed", "hold outside", "thawed later", "the last glob binds"],
)  # fmt: skip
def test_a_contract_that_is_kept_is_silent(trial, training, freeze):
    for case in trial(training).breached(freeze):
        assert [one.code for one in judge(case).findings if one.code != "CK403" or freeze.get("layers.*") != "hold"
                or "removed" not in freeze.values()] == []  # fmt: skip


def test_a_zero_gradient_that_moves_nothing_is_a_warning_and_no_cause(trial):
    """SGD without momentum and decay leaves a parameter with a zero gradient where it is."""

    def plain(self: Training) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(self.model.parameters(), lr=0.05)]

    judgement = judge(trial(factory(ZeroGradients, make_optimizers=plain)).breached(HOLD)[0])
    assert {(one.code, one.severity) for one in judgement.findings} == {("CK403", Severity.WARNING)}
    assert judgement.cause is None


def test_a_breach_of_both_runs_is_told_once(trial):
    cases = trial(factory(ZeroGradients)).breached(HOLD)
    assert [bool(judge(case).findings) for case in cases] == [True, False]


def test_a_breach_of_the_resumed_run_only_names_that_run(trial):
    found = trial(factory(Freezing), factory(Freezing, after_load=lambda self: self.model.layers.requires_grad_(True)))
    cases = found.breached({"layers.*": "no-update"})
    assert [one.code for one in judge(cases[0]).findings] == []
    told = judge(cases[1]).findings
    assert {one.code for one in told} == {"CK401", "CK403"}
    assert all("resumed@3" in one.message for one in told)


def frozen_state_dropped(self: Training, checkpoint: dict[str, Any]) -> None:
    for place in range(6):
        del checkpoint["optimizer0"]["state"][place]


FAULTS = (
    Fault(
        "layers are frozen after the load",
        "CK405",
        factory(after_load=lambda self: self.model.layers.requires_grad_(False)),
        where={"parameter": "layers.0.bias"},
        names=("no longer trained",),
        numbers={"frozen": sorted(LAYERS), "thawed": []},
    ),
    Fault(
        "layers thawed before the save are frozen again",
        "CK405",
        factory(Thawing, when=2),
        numbers={"frozen": sorted(LAYERS), "thawed": []},
    ),
    Fault(
        "layers frozen before the save are trained again",
        "CK405",
        factory(Freezing, before_load=lambda self: None),
        names=("now trained",),
        numbers={"frozen": [], "thawed": sorted(LAYERS)},
    ),
    Fault(
        "the first process thaws by its own count of steps",
        "CK405",
        factory(Thawing, clock=lambda self, s: self.made),
        where={"step": 5, "stage": "hyperparameters", "key": "frozen"},
        numbers={"frozen": sorted(LAYERS), "thawed": []},
        confidence="likely",
    ),
    Fault(
        "the state of frozen parameters is not in the file",
        "CK406",
        factory(Freezing, spoil=frozen_state_dropped),
        where={"optimizer": 0, "parameter": "layers.0.weight"},
        numbers={"parameters": list(LAYERS)},
    ),
)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_freeze_set_that_a_load_changed_is_the_cause(trial: Trials, fault: Fault):
    fault.check(trial)


def test_lost_state_of_a_trained_and_of_a_frozen_parameter_are_two_codes(trial):
    def spoil(self: Training, checkpoint: dict[str, Any]) -> None:
        for place in (0, 6):
            del checkpoint["optimizer0"]["state"][place]

    found = trial(factory(Freezing, spoil=spoil))
    assert [(one.code, one.where.parameter) for one in found.judgement.findings] == [
        ("CK406", "layers.0.weight"),
        ("CK202", "head.weight"),
    ]

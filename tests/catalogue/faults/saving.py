"""Saving that changes the run which saves."""

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.faults.moments import keeps_state
from tests.catalogue.spec import Spec
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "saving"


def _at_save(change: Callable[[Training], Any]) -> Callable[[Training], None]:
    """Plant a change that the save makes to the live run, after the checkpoint was put together."""

    def inject(training: Training) -> None:
        def hook(saved: Checkpoint) -> None:
            change(training)

        training.before_save.append(hook)

    return inject


def _perturbs(stage: str, *keys: str, parameters: tuple[str, ...] = ()) -> Callable[[Training], Expected]:
    return lambda training: Expected(("CK609",), stages=(stage,), keys=keys, parameters=parameters)


def _sample(training: Training) -> None:
    torch.multinomial(torch.ones(5), 1)


def _statistics(training: Training) -> None:
    """A forward pass in train mode, with dropout switched off so that it draws nothing."""
    kept = [(one, one.p) for one in training.model.modules() if isinstance(one, nn.Dropout)]
    for one, _ in kept:
        one.p = 0.0
    with torch.no_grad():
        training.model(training.data.features[:8])
    for one, p in kept:
        one.p = p


def _half_and_back(training: Training) -> None:
    training.model.half().float()


def _step_schedule(training: Training) -> None:
    training.schedule.step(*([1.0] if training.spec.schedule == "plateau" else []))


def _clip_state(training: Training) -> None:
    for state in training.optimizer.state.values():
        for value in state.values():
            if isinstance(value, Tensor) and value.numel() > 1:
                value.clamp_(-1e-4, 1e-4)


def _merge(training: Training) -> None:
    """Merge an adapter into the weight for the export, and take it out again: rounding stays."""
    weight = training.model.get_parameter("middle.weight")
    addition = torch.linspace(-3, 3, weight.numel()).view_as(weight)
    with torch.no_grad():
        weight.add_(addition).sub_(addition)


def _without_dropout(training: Training) -> None:
    for one in training.model.modules():
        if isinstance(one, nn.Dropout):
            one.p = 0.0


def _for_export(training: Training) -> None:
    training.model.get_submodule("middle").requires_grad_(False)


def _renamed_groups(training: Training) -> None:
    """Strip what an export does not need from the groups themselves."""
    for group in training.optimizer.param_groups:
        group["lr"] = 0.0


def _many(training: Training) -> tuple[str, ...]:
    return tuple(dict(training.model.named_parameters()))


def _schedules(spec: Spec) -> bool:
    return spec.schedule not in ("none", "constant", "plateau")


FAULTS: Final = (
    Fault("save-draws-a-sample", "The save also writes a sample, drawn from the global generator.",
          FAMILY, _at_save(_sample), _perturbs("rng", "torch"), reports=("rng_order",)),
    Fault("save-leaves-eval-mode", "The save evaluates, and forgets model.train().",
          FAMILY, _at_save(lambda training: training.model.eval()),
          lambda training: Expected(("CK609",), stages=("hyperparameters",)), reports=("mode",)),
    Fault("save-moves-statistics", "The save measures a loss in train mode, which moves BatchNorm's statistics.",
          FAMILY, _at_save(_statistics), _perturbs("buffers"), specs={"model": "norm"}),
    Fault("save-steps-the-schedule", "The schedule is stepped by the function that saves.",
          FAMILY, _at_save(_step_schedule),
          lambda training: Expected(("CK609",), stages=("hyperparameters", "schedule")),
          applies=_schedules, reports=("sched_unit",)),
    Fault("save-clears-an-open-window", "The save calls zero_grad in the middle of an accumulation window.",
          FAMILY, _at_save(lambda training: training.optimizer.zero_grad()), _perturbs("grad"),
          specs={"window": 2}, reports=("accum",)),
    Fault("save-halves-the-live-model", "model.half() for a small file changes the live model; float() brings it back.",
          FAMILY, _at_save(_half_and_back),
          lambda training: Expected(("CK609",), stages=("buffers", "grad", "param"))),
    Fault("save-takes-a-batch", "The save takes a batch of the training data to evaluate on.",
          FAMILY, _at_save(lambda training: training.data.next()), _perturbs("data"), reports=("data_pos",)),
    Fault("save-clips-the-state", "The function that cleans the state before it is written cleans the live one.",
          FAMILY, _at_save(_clip_state),
          lambda training: Expected(("CK609",), stages=("state",), parameters=_many(training)), applies=keeps_state),
    Fault("save-merges-and-unmerges", "An adapter is merged for the export and subtracted again, which rounds.",
          FAMILY, _at_save(_merge), _perturbs("param", parameters=("middle.weight",))),
    Fault("save-switches-dropout-off", "The save prepares the live model for export: dropout gets p = 0.",
          FAMILY, _at_save(_without_dropout),
          lambda training: Expected(("CK609",), step=training.spec.at + 1, stages=("loss",))),
    Fault("save-freezes-for-the-export", "The save calls requires_grad_(False) on a part, and leaves it so.",
          FAMILY, _at_save(_for_export), lambda training: Expected(("CK609",), stages=("hyperparameters",)),
          reports=("refreeze",)),
    Fault("save-edits-the-live-groups", "The save sets the rate of the live groups to 0 for the file.",
          FAMILY, _at_save(_renamed_groups), _perturbs("hyperparameters", "lr"), specs={"schedule": "none"}),
)  # fmt: skip

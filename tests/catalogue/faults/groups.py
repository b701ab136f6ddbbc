"""Hyperparameters of param groups after a load."""

from typing import Any, Final

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.making import LR, WITHOUT_DECAY
from tests.catalogue.spec import Spec
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "hyperparameters"


def _changed(*keys: str, says: tuple[str, ...] = ()) -> Any:
    return lambda training: Expected(("CK306",), keys=keys, says=says)


def _set_after(training: Training, **values: Any) -> None:
    def change() -> None:
        for group in training.optimizer.param_groups:
            group.update(values)

    training.after_restore.append(change)


def _groups_of_the_constructor(training: Training) -> None:
    def keep(checkpoint: Checkpoint) -> None:
        checkpoint["optimizer"]["param_groups"] = training.optimizer.state_dict()["param_groups"]

    training.before_restore.append(keep)


def _first_group_only(training: Training) -> None:
    def keep(checkpoint: Checkpoint) -> None:
        live = training.optimizer.state_dict()["param_groups"]
        checkpoint["optimizer"]["param_groups"][1:] = live[1:]

    training.before_restore.append(keep)


FLAG_OF: Final = {"SGD-nesterov": "nesterov", "Adam-amsgrad": "amsgrad", "RMSprop-momentum": "momentum"}
"""What torch takes to be off where a file does not say it."""


def _without(training: Training, keys: tuple[str, ...]) -> None:
    def drop(checkpoint: Checkpoint) -> None:
        for group in checkpoint["optimizer"]["param_groups"]:
            for key in keys:
                group.pop(key, None)

    training.before_save.append(drop)


RATES: Final = ("initial_lr", "max_lr", "min_lr")


def _decays(spec: Spec) -> bool:
    return spec.optimizer not in WITHOUT_DECAY


FAULTS: Final = (
    Fault("rate-set-anew", "The rate of the command line is put into the groups after the load.", FAMILY,
          lambda training: _set_after(training, lr=LR), _changed("lr", says=("the live value won",)),
          reports=("hyper_stale",)),
    Fault("decay-of-another-configuration", "Weight decay comes from a configuration that was changed meanwhile.",
          FAMILY,
          lambda training: _set_after(training, weight_decay=0.3), _changed("weight_decay", says=("'loaded': 0.3",)),
          reports=("hyper_stale",), applies=_decays),
    Fault("sign-turned", "The load turns on maximize, which a wrapper had handled by a sign of its own.", FAMILY,
          lambda training: _set_after(training, maximize=True), _changed("maximize")),
    Fault("groups-not-restored", "Only the state is restored, and the groups are as the constructor made them.", FAMILY,
          _groups_of_the_constructor, _changed("lr"), reports=("hyper_stale",),
          applies=lambda spec: spec.schedule != "none"),
    Fault("first-group-restored-only", "A loop over groups ends after the first.", FAMILY,
          _first_group_only, _changed("lr", says=("of group 1",)),
          applies=lambda spec: spec.schedule != "none" and spec.groups == 2),
    Fault("flag-missing-in-an-old-file",
          "A file of an older version lacks a hyperparameter, which torch then takes to be off.",
          FAMILY, lambda training: _without(training, (FLAG_OF[training.spec.optimizer],)),
          lambda training: Expected(("CK306",), keys=(FLAG_OF[training.spec.optimizer],)),
          applies=lambda spec: spec.optimizer in FLAG_OF),
    Fault("rates-of-the-schedule-missing",
          "Only known hyperparameters are saved, and the schedule has put its own beside them.",
          FAMILY, lambda training: _without(training, RATES), _changed(*RATES), specs={"schedule": "one-cycle"}),
)  # fmt: skip

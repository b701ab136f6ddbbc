"""Counters and other scalars that an optimizer keeps beside its tensors."""

from typing import Any, Final

import torch

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.slots import counter, counts, live_state, with_state
from tests.catalogue.spec import Spec
from tests.catalogue.training import Training

FAMILY: Final = "counters"


def _counted(training: Training, loaded: float) -> Expected:
    """The counters were one number when saved and are another one after the load; one at rest may be so already."""
    changed = tuple(name for name in with_state(training) if counter(training, name) != loaded)
    saved = counter(training, changed[0])
    words = (f"was {saved} when saved and is {loaded}", f"'off_by': {loaded - saved}")
    return Expected(("CK505",), parameters=changed, keys=("step",), says=words)


def _set_all(training: Training, value: Any) -> None:
    """After the load, make every counter what a function of the old number says."""

    def change() -> None:
        for state in training.optimizer.state.values():
            state["step"] = value(state["step"])

    training.after_restore.append(change)


def _thawed_late(training: Training) -> None:
    """The middle layer is frozen for the first two steps, so that it has counted less."""
    middle = training.model.get_submodule("middle")
    middle.requires_grad_(False)

    def thaw(s: int) -> None:
        if s == 3:
            middle.requires_grad_(True)

    training.before_step.append(thaw)
    training.before_restore.append(lambda saved: middle.requires_grad_(True))


def _of_the_last_active(training: Training) -> None:
    _thawed_late(training)

    def change() -> None:
        most = max(float(state["step"]) for state in training.optimizer.state.values() if state)
        for state in training.optimizer.state.values():
            state["step"] = torch.tensor(most)

    training.after_restore.append(change)


def _behind(training: Training) -> tuple[str, ...]:
    """The parameters that count less than the last active one: the layer that thaws late, and what is frozen for good.

    Adagrad makes a state for a frozen parameter too.
    """
    frozen = [name for name, one in training.model.named_parameters() if not one.requires_grad]
    return ("middle.weight", "middle.bias", *frozen)


def _shared(training: Training) -> None:
    def share() -> None:
        one = next(state["step"] for state in training.optimizer.state.values())
        for state in training.optimizer.state.values():
            state["step"] = one

    training.after_restore.append(share)


def _count_alike(spec: Spec) -> bool:
    """Whether all counters are equal: Adagrad keeps one at zero for a frozen parameter of a group."""
    return counts(spec) and not (spec.optimizer == "Adagrad" and spec.freeze == "grad")


SCALARS: Final = {"NAdam": ("mu_product",), "ASGD": ("eta", "mu")}
"""Scalars beside the counter, by optimizer."""


def _scalars_begin_anew(training: Training) -> None:
    def begin() -> None:
        for state in training.optimizer.state.values():
            for key in SCALARS[training.spec.optimizer]:
                state[key] = torch.ones(())

    training.after_restore.append(begin)


def _scalars(training: Training) -> Expected:
    changed = [key for key in SCALARS[training.spec.optimizer]
               if float(live_state(training, with_state(training)[0])[key]) != 1]  # fmt: skip
    return Expected(("CK601",), parameters=with_state(training), keys=tuple(changed))


FAULTS: Final = (
    Fault("counters-at-zero", "Moments are restored, and the counters begin again.", FAMILY,
          lambda training: _set_all(training, torch.zeros_like),
          lambda training: _counted(training, 0.0), applies=counts),
    Fault("counters-one-too-far", "The loop's number of the next step is written into the state.", FAMILY,
          lambda training: _set_all(training, lambda one: one + 1),
          lambda training: _counted(training, counter(training, with_state(training)[0]) + 1), applies=counts),
    Fault("counters-of-micro-batches", "Counters are rebuilt from the number of batches, of which two make an update.",
          FAMILY, lambda training: _set_all(training, lambda one: torch.tensor(float(training.loop.completed))),
          lambda training: _counted(training, 5.0), applies=counts, specs={"window": 2}),
    Fault("one-counter-for-all", "The counter of the parameter that was last active is given to all.", FAMILY,
          _of_the_last_active,
          lambda training: Expected(("CK505",), parameters=_behind(training), keys=("step",)),
          reports=("step_desync",), applies=counts),
    Fault("counter-as-a-plain-number",
          "A counter comes back as an int, which an update counts up in a copy of its own.",
          FAMILY, lambda training: _set_all(training, int),
          lambda training: Expected(("CK505", "CK601"), parameters=with_state(training), keys=("step",)),
          applies=counts),
    Fault("one-counter-tensor-shared", "All parameters are given one counter tensor, which each of them counts up.",
          FAMILY,
          _shared, lambda training: Expected(("CK607",), step=6, stages=("state",)), reports=("alias",),
          applies=_count_alike),
    Fault("scalars-begin-anew", "A loader restores tensors of the parameter's shape only.", FAMILY,
          _scalars_begin_anew, _scalars, applies=lambda spec: spec.optimizer in SCALARS),
)  # fmt: skip

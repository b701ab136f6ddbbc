"""The optimizer's state: not saved, not loaded, lost on the way, or not what it was."""

from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.slots import (
    MOMENTUM_ONLY,
    change_tensors,
    counts,
    keeps_state,
    live_state,
    rebuild,
    slots,
    tensors,
    with_state,
)
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "optimizer state"


def _all_lost(training: Training) -> Expected:
    return Expected(("CK201",), parameters=with_state(training))


def _never_loaded(training: Training) -> None:
    training.restore_optimizer = lambda state: None  # type: ignore[method-assign]


def _cleared(training: Training) -> None:
    def clear() -> None:
        training.optimizer.state.clear()  # the dict that the load has put there

    training.after_restore.append(clear)


def _under_names(training: Training) -> None:
    def restore(state: Any) -> None:
        names = slots(training)
        training.optimizer.load_state_dict({**state, "state": {}})
        for number, entries in state["state"].items():
            training.optimizer.state[names[number]] = entries  # type: ignore[index]

    training.restore_optimizer = restore  # type: ignore[method-assign]


def _built_anew_in_secret(training: Training) -> None:
    def build() -> None:
        declared, training.declared = training.declared, None
        rebuild(training)
        training.declared = declared

    training.after_restore.append(build)


def _drop(training: Training, names: tuple[str, ...]) -> None:
    """Leave the state of some parameters out of the file."""

    def drop(checkpoint: Checkpoint) -> None:
        for number, name in enumerate(slots(training)):
            if name in names:
                checkpoint["optimizer"]["state"].pop(number, None)

    training.before_save.append(drop)


def _later_groups(training: Training) -> tuple[str, ...]:
    first = len(training.optimizer.param_groups[0]["params"])
    return tuple(slots(training)[first:])


def _last_key(training: Training) -> tuple[str, str]:
    name = with_state(training)[0]
    return name, [key for key, one in live_state(training, name).items() if isinstance(one, Tensor) and key != "step"][
        -1
    ]


def _drop_key(training: Training) -> None:
    def drop(checkpoint: Checkpoint) -> None:
        name, key = _last_key(training)
        state = checkpoint["optimizer"]["state"]
        number = slots(training).index(name)
        state[number] = {one: value for one, value in state[number].items() if one != key}

    training.before_save.append(drop)


def _none_in_place(training: Training) -> None:
    def change(checkpoint: Checkpoint) -> None:
        number = slots(training).index(with_state(training)[0])
        checkpoint["optimizer"]["state"][number] = {"momentum_buffer": None}

    training.before_save.append(change)


def _one_zeroed(training: Training) -> None:
    def zero() -> None:
        for one in live_state(training, with_state(training)[0]).values():
            if isinstance(one, Tensor) and one.numel() > 1:
                one.zero_()

    training.after_restore.append(zero)


def _transposed(training: Training) -> None:
    def transpose(checkpoint: Checkpoint) -> None:
        number = slots(training).index("middle.weight")
        state = {number: dict(checkpoint["optimizer"]["state"][number])}
        for entries, key in tensors(state):
            entries[key] = entries[key].t().contiguous()
        checkpoint["optimizer"]["state"].update(state)

    training.before_save.append(transpose)


def _of_an_older_step(training: Training) -> None:
    kept: dict[int, Any] = {}
    training.after_step.append(lambda s: kept.update({s: deepcopy(training.optimizer.state_dict())}))
    training.before_save.append(lambda saved: saved.update(optimizer=kept[training.loop.completed - 2]))


def _by_reference(training: Training) -> None:
    """A whole, right file is written at once, and again when the next step is over, by a writer with live moments."""
    write = training.save
    pending: list[tuple[Checkpoint, Path]] = []

    def save(path: Path) -> None:
        write(path)
        checkpoint = training.collect()
        pending.append(
            ({name: one if name == "optimizer" else deepcopy(one) for name, one in checkpoint.items()}, path)
        )

    training.save = save  # type: ignore[method-assign]
    training.after_step.append(lambda s: torch.save(*pending.pop()) if pending else None)


def _update_to_make_state(training: Training) -> None:
    def update() -> None:
        parameters = list(training.model.parameters())
        gathered = [one.grad for one in parameters]
        for one in parameters:
            one.grad = torch.zeros_like(one) if one.requires_grad else None
        training.optimizer.step()
        for one, grad in zip(parameters, gathered, strict=True):
            one.grad = grad

    training.after_restore.append(update)


def _cleared_at_the_boundary(training: Training) -> None:
    """A second stage begins with an optimizer without history; the resumed run is not told so."""

    def begin(s: int) -> None:
        if s == training.spec.at + 1 and not training.resumed:
            training.optimizer.state.clear()

    training.before_step.append(begin)


FAULTS: Final = (
    Fault("state-emptied-in-the-file", "The file keeps the groups and an empty state.", FAMILY,
          lambda training: training.before_save.append(lambda saved: saved["optimizer"].update(state={})),
          _all_lost, reports=("opt_absent",), applies=keeps_state),
    Fault("state-never-loaded", "The load forgets the optimizer.", FAMILY,
          _never_loaded, _all_lost, reports=("opt_absent", "opt_wiped"), applies=keeps_state),
    Fault("state-cleared-after-the-load", "A setter that runs after the load empties the state.", FAMILY,
          _cleared, _all_lost, reports=("opt_wiped",), applies=keeps_state),
    Fault("optimizer-built-anew-after-the-load", "The trainer's setup comes after the load and builds an optimizer.",
          FAMILY, lambda training: training.after_restore.append(lambda: rebuild(training)),
          _all_lost, reports=("opt_wiped",), applies=keeps_state),
    Fault("optimizer-built-anew-in-secret", "The same, and whoever watches the run still holds the old one.", FAMILY,
          _built_anew_in_secret, lambda training: Expected(("CK612",), step=6, stages=("grad", "scaler"),
          says=("'never_steps': True",)),
          reports=("opt_wiped",)),
    Fault("state-put-under-names", "A loader of one's own sets optimizer.state[name] in place of the tensor.", FAMILY,
          _under_names, _all_lost, applies=keeps_state),
    Fault("state-of-one-parameter-missing", "A filter by name drops a parameter's entry.", FAMILY,
          lambda training: _drop(training, ("middle.weight",)),
          lambda training: Expected(("CK202",), parameters=("middle.weight",)), applies=keeps_state),
    Fault("state-of-later-groups-missing", "The save walks through the first param group only.", FAMILY,
          lambda training: _drop(training, _later_groups(training)),
          lambda training: Expected(("CK202",), parameters=_later_groups(training)),
          applies=lambda spec: keeps_state(spec) and spec.groups == 2),
    Fault("one-key-missing", "A tensor of a parameter's state is left out to save space.", FAMILY,
          _drop_key, lambda training: Expected(("CK203",), parameters=_last_key(training)[:1],
          keys=_last_key(training)[1:]),
          applies=counts),
    Fault("momentum-saved-as-none", "A writer that knows no tensor puts None in place of a momentum buffer.", FAMILY,
          _none_in_place, lambda training: Expected(("CK203", "CK202"), parameters=with_state(training)[:1]),
          applies=lambda spec: spec.optimizer in MOMENTUM_ONLY and keeps_state(spec)),
    Fault("moments-of-one-parameter-zeroed", "A layer is initialised again after the load, with its moments.", FAMILY,
          _one_zeroed, lambda training: Expected(("CK601",), parameters=with_state(training)[:1]), applies=keeps_state),
    Fault("moments-summed-over-ranks", "Four ranks gather their moments by a sum, not by a mean.", FAMILY,
          lambda training: training.before_save.append(change_tensors(lambda one: one * 4)),
          lambda training: Expected(("CK601",), parameters=with_state(training)), applies=keeps_state),
    Fault("moments-transposed", "A converter turns a layer's weights and moments, and turns back the weights only.",
          FAMILY, _transposed, lambda training: Expected(("CK601",), parameters=("middle.weight",)),
          applies=lambda spec: keeps_state(spec) and spec.optimizer != "Adafactor"),
    Fault("moments-of-an-older-step", "The optimizer is written by a snapshot of two steps ago.", FAMILY,
          _of_an_older_step, lambda training: Expected(("CK601",), parameters=with_state(training),
          says=("values of step",)),
          reports=("alias",), applies=keeps_state),
    Fault("moments-kept-by-reference", "A background writer holds the live state_dict while the next step moves it.",
          FAMILY,
          _by_reference, lambda training: Expected(("CK601",), parameters=with_state(training),
          says=("values of step 6",)),
          reports=("alias",), applies=keeps_state),
    Fault("update-made-to-create-state",
          "A step on zero gradients after the load, so that there is state to load into.",
          FAMILY, _update_to_make_state, lambda training: Expected(("CK505" if counts(training.spec) else "CK601",)),
          applies=lambda spec: keeps_state(spec) or spec.groups == 2),
    Fault("state-kept-where-it-was-to-be-new",
          "A flag says to begin without the optimizer's history; it is not passed on.",
          FAMILY, _cleared_at_the_boundary, lambda training: Expected(("CK607",), step=6, stages=("state",)),
          reports=("flag_ignored",), applies=keeps_state),
)  # fmt: skip

"""Steps: made again, left out, made otherwise, or ended early by a counter that the file does not hold."""

import copy
from collections.abc import Callable
from typing import Final

import torch

from tests.catalogue.fault import Expected, Fault, where_updates_part
from tests.catalogue.training import BATCH, SAMPLES, Checkpoint, Training

FAMILY: Final = "steps"


def _first_update(training: Training) -> int:
    """The first step after the load that updates."""
    return next(s for s in range(training.spec.at + 1, training.spec.steps + 1) if s % training.spec.window == 0)


def _plain_batches(training: Training) -> None:
    training.augmented = lambda features, labels: (features, labels)  # type: ignore[method-assign]


def _by_counter(off: int) -> Callable[[Training], None]:
    """The batch follows the counter, which the file holds `off` too great."""

    def inject(training: Training) -> None:
        _plain_batches(training)

        def seek(s: int) -> None:
            training.data.position = training.loop.completed * BATCH % SAMPLES

        def save(saved: Checkpoint) -> None:
            saved["loop"]["completed"] += off

        training.before_step.append(seek)
        training.before_save.append(save)

    return inject


def _before_the_update(training: Training) -> None:
    """The checkpoint is put together before the optimizer steps, and written after it."""
    early: Checkpoint = {}
    update = training.update

    def collect(loss: float) -> None:
        early.update({name: copy.deepcopy(value) for name, value in training.collect().items()
                      if name in ("model", "optimizer", "schedule", "scaler", "ema")})  # fmt: skip
        update(loss)

    training.update = collect  # type: ignore[method-assign]
    training.before_save.append(lambda saved: saved.update(early))


def _twice(training: Training) -> None:
    """The first step after a load is made twice: once to warm up."""
    step, done = training.step, []

    def again(s: int) -> float:
        if training.resumed and not done:
            done.append(s)
            step(s)
        return step(s)

    training.step = again  # type: ignore[method-assign]


def _first_update_left_out(training: Training) -> None:
    """The loop takes the first closed window after a load for one that is still open."""
    update, left_out = training.update, []

    def skip(loss: float) -> None:
        if training.resumed and not left_out:
            left_out.append(loss)
        else:
            update(loss)

    training.update = skip  # type: ignore[method-assign]


def _sanity_check(training: Training) -> None:
    """A validation pass before the first step after a load, with dropout on."""

    def validate(s: int) -> None:
        if training.resumed and s == training.spec.at + 1:
            torch.rand(4)

    training.before_step.append(validate)


def _patience(training: Training) -> None:
    """Training rests once this process has made seven steps: a patience that begins anew with each process."""
    step, made = training.step, [0]

    def patient(s: int) -> float:
        made[0] += 1
        return step(s) if made[0] <= 7 else 0.0

    training.step = patient  # type: ignore[method-assign]


def _limit(training: Training) -> None:
    """A budget of steps is counted from the number that was loaded, and asked against the whole run's."""
    step, made = training.step, [0]

    def limited(s: int) -> float:
        made[0] += 1 if not training.resumed else 4
        if made[0] > 12:
            raise RuntimeError("the budget of this run is spent")
        return step(s)

    training.step = limited  # type: ignore[method-assign]


def _set_again(training: Training) -> None:
    training.after_restore.append(lambda: setattr(training.loop, "smoothing", 0.3))


def _step_before(training: Training) -> Expected:
    return Expected(("CK601",), says=(f"step {training.spec.at - 1}",))


def _rests(training: Training) -> Expected:
    return Expected(("CK612",), step=8, stages=("hyperparameters", "inputs"), says=("updates",))


def _updates(training: Training) -> Expected:
    stages = (where_updates_part(training),)
    return Expected(("CK612",), step=_first_update(training), stages=stages, says=("updates",))


FAULTS: Final = (
    Fault("counter-one-behind", "The counter is written before it is counted up, and the batch follows it.",
          FAMILY, _by_counter(-1),
          lambda training: Expected(("CK612",), stages=("load",), says=(f"step {training.spec.at}",),
                                    keys=("loop.completed",)),
          reports=("loop",)),
    Fault("counter-one-ahead", "The counter is counted up twice, so that a step's batch is never seen.",
          FAMILY, _by_counter(1),
          lambda training: Expected(("CK612",), stages=("load",), says=(f"step {training.spec.at + 2}",)),
          reports=("loop", "step_desync")),
    Fault("saved-before-the-update", "The state is collected before the optimizer steps, and written after it.",
          FAMILY, _before_the_update, _step_before, applies=lambda spec: spec.window == 1, reports=("loop",)),
    Fault("first-step-made-twice", "The first batch after a load warms everything up, and trains.",
          FAMILY, _twice,
          lambda training: Expected(("CK612",), step=training.spec.at + 1,
                                    stages=("hyperparameters", "inputs"), says=("updates",))),
    Fault("first-update-left-out", "The first update after a load is taken for part of an open window.",
          FAMILY, _first_update_left_out, _updates, reports=("accum",)),
    Fault("sanity-check-draws", "A validation pass at the start of a resumed run draws within its first step.",
          FAMILY, _sanity_check,
          lambda training: Expected(("CK603",), step=training.spec.at + 1, stages=("loss",), keys=("torch",)),
          reports=("rng_order",)),
    Fault("patience-begins-anew", "A new callback object has seen no step: training goes on where it had stopped.",
          FAMILY, _patience, _rests, reports=("loop",)),
    Fault("budget-spent-early", "Loaded steps count against the budget of this process, and it ends early.",
          FAMILY, _limit,
          lambda training: Expected(("CK610",), step=training.spec.at + 4, stages=(None,), says=("budget",)),
          reports=("loop",)),
    Fault("value-set-again-at-start", "A declared value is loaded, and set again when training begins.",
          FAMILY, _set_again,
          lambda training: Expected(("CK601",), keys=("loop.smoothing",), says=("smoothing",)),
          reports=("loop",)),
)  # fmt: skip

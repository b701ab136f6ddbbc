"""The learning-rate schedule: where it stands after a load, and what its rates are computed from."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "schedule"


def keys_of(state: object, path: str = "") -> Iterator[str]:
    """The entries of a state, spelled as paths: `_schedulers[0].last_epoch`."""
    if isinstance(state, dict):
        for name, value in state.items():
            yield from keys_of(value, f"{path}.{name}" if path else str(name))
    elif isinstance(state, list | tuple):
        for place, value in enumerate(state):
            yield from keys_of(value, f"{path}[{place}]")
    else:
        yield path


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"


def place(training: Training, offset: int, *words: str) -> Expected:
    """The schedule is so many updates away from where it was saved."""
    way = "behind" if offset < 0 else "ahead"
    said = f"the schedule is {_steps(abs(offset))} {way}"
    return Expected(("CK602",), keys=tuple(keys_of(training.schedule.state_dict())), says=(said, *words))


def _not_loaded(training: Training) -> None:
    training.restore_schedule = lambda state: None  # type: ignore[method-assign]


def _in_micro_batches(training: Training) -> None:
    def restore(state: Any) -> None:
        training.schedule.load_state_dict({**state, "last_epoch": training.loop.completed_when_saved})

    def note(checkpoint: Checkpoint) -> None:
        training.loop.completed_when_saved = checkpoint["loop"]["completed"]  # type: ignore[attr-defined]

    training.before_restore.append(note)
    training.restore_schedule = restore  # type: ignore[method-assign]


def _epoch_for_updates(training: Training) -> None:
    def restore(checkpoint: Checkpoint) -> None:
        checkpoint["schedule"]["last_epoch"] = checkpoint["data"]["epoch"]

    training.before_restore.append(restore)


def _saved_before_its_step(training: Training) -> None:
    update, before = training.update, {}

    def noted(loss: float) -> None:
        before.update(deepcopy(training.schedule.state_dict()))
        update(loss)

    training.update = noted  # type: ignore[method-assign]
    training.before_save.append(lambda checkpoint: checkpoint.update(schedule=before))


def _stepped_at_load(training: Training) -> None:
    training.after_restore.append(training.schedule.step)


def _groups_not_loaded(training: Training) -> None:
    def restore(state: Any) -> None:
        live = training.optimizer.state_dict()["param_groups"]
        training.optimizer.load_state_dict({"state": state["state"], "param_groups": live})

    training.restore_optimizer = restore  # type: ignore[method-assign]


def _longer_horizon(training: Training) -> None:
    training.after_restore.append(lambda: setattr(training.schedule, "T_max", 40))


def _inner_lost(training: Training) -> None:
    def restore(state: Any) -> None:
        inner = training.schedule.state_dict()["_schedulers"]
        training.schedule.load_state_dict({**state, "_schedulers": inner})

    training.restore_schedule = restore  # type: ignore[method-assign]


def _place_alone(training: Training) -> None:
    def restore(state: Any) -> None:
        training.schedule.last_epoch = state["last_epoch"]

    training.restore_schedule = restore  # type: ignore[method-assign]


def _plateau_forgets(training: Training) -> None:
    def restore(state: Any) -> None:
        training.schedule.load_state_dict({**state, "best": float("inf"), "num_bad_epochs": 0})

    training.restore_schedule = restore  # type: ignore[method-assign]


def _other_function(training: Training) -> None:
    def rebuild() -> None:
        training.schedule.lr_lambdas = [lambda s: 1 / (1 + 0.3 * s)] * len(training.schedule.lr_lambdas)

    training.after_restore.append(rebuild)


WARM_UP: Final = 4


def _warm_up_of_the_process(training: Training) -> None:
    made = 0

    def warm(s: int) -> None:
        nonlocal made
        made += 1
        for group in training.optimizer.param_groups:
            group["lr"] = 0.02 * min(1.0, made / WARM_UP)

    training.before_step.append(warm)


def _warmed_again(training: Training) -> Expected:
    offset = -training.spec.at
    said = ("which is the rate of step 1", f"'offset': {offset}")
    return Expected(("CK602",), step=training.spec.at + 1, stages=("hyperparameters",), keys=("lr",), says=said)


def _of_a_plateau(training: Training) -> Expected:
    """Where the next update brings a new best score, that is what the counters hold then in both runs."""
    s, updates, best = training.spec.at, training.schedule.last_epoch, training.schedule.best
    while training.schedule.last_epoch == updates:
        s += 1
        training.step(s)
    if training.schedule.best != best:
        return Expected((), fails=False)
    return _of_keys("best", "num_bad_epochs", says=("best",))


def _of_keys(*keys: str, says: tuple[str, ...] = ()) -> Expected:
    return Expected(("CK602",), keys=keys, says=says)


def _inner_keys(training: Training) -> Expected:
    keys = keys_of({"_schedulers": training.schedule.state_dict()["_schedulers"]})
    return Expected(("CK602",), keys=tuple(keys), says=("of the composed schedule is",))


FAULTS: Final = (
    Fault(
        name="schedule-not-loaded",
        why="The load forgets the scheduler.",
        family=FAMILY,
        reports=("sched_missing",),
        inject=_not_loaded,
        expect=lambda training: place(training, -training.schedule.last_epoch, "offset"),
        applies=lambda spec: spec.schedule not in ("none", "plateau"),
    ),
    Fault(
        name="schedule-counted-in-micro-batches",
        why="The place in the schedule is set from the count of micro-batches: times the window.",
        family=FAMILY,
        reports=("sched_unit",),
        inject=_in_micro_batches,
        expect=lambda training: place(training, training.spec.at - training.schedule.last_epoch),
        applies=lambda spec: spec.window > 1,
        specs={"schedule": "cosine", "window": 2, "amp": "none"},
    ),
    Fault(
        name="schedule-given-the-epoch",
        why="An epoch is given as last_epoch to a schedule that steps with every update.",
        family=FAMILY,
        reports=("sched_unit",),
        inject=_epoch_for_updates,
        expect=lambda training: place(training, training.data.epoch - training.schedule.last_epoch),
        specs={"schedule": "polynomial"},
    ),
    Fault(
        name="schedule-saved-before-its-step",
        why="The scheduler's state is taken before its step, the optimizer's after it.",
        family=FAMILY,
        reports=("sched_off",),
        inject=_saved_before_its_step,
        expect=lambda training: place(training, -1),
        applies=lambda spec: spec.schedule not in ("none", "plateau"),
    ),
    Fault(
        name="schedule-stepped-at-load",
        why="The load steps the schedule, and so does the loop.",
        family=FAMILY,
        reports=("sched_off",),
        inject=_stepped_at_load,
        expect=lambda training: place(training, 1),
        applies=lambda spec: spec.schedule not in ("none", "plateau"),
    ),
    Fault(
        name="schedule-loaded-without-the-groups",
        why="The scheduler is restored, the rates in the optimizer's groups are the constructor's.",
        family=FAMILY,
        reports=("sched_last_epoch",),
        inject=_groups_not_loaded,
        expect=lambda training: Expected(("CK306",), keys=("lr",), says=("live",)),
        specs={"schedule": "cosine"},
    ),
    Fault(
        name="schedule-with-another-horizon",
        why="T_max is set to a longer training after the load.",
        family=FAMILY,
        inject=_longer_horizon,
        expect=lambda training: _of_keys("T_max", says=("T_max",)),
        specs={"schedule": "cosine"},
    ),
    Fault(
        name="schedule-inner-state-lost",
        why="A composed schedule saves its own place and not that of the schedules in it.",
        family=FAMILY,
        reports=("sched_inner",),
        inject=_inner_lost,
        expect=_inner_keys,
        specs={"schedule": "warm-cosine"},
    ),
    Fault(
        name="schedule-place-alone-restored",
        why="last_epoch is set by hand; the step count in it is that of a new scheduler.",
        family=FAMILY,
        reports=("sched_inner",),
        inject=_place_alone,
        expect=lambda training: _of_keys("_step_count", "_last_lr[0]", "_last_lr[1]", says=("_step_count",)),
        specs={"schedule": "cosine"},
    ),
    Fault(
        name="schedule-plateau-forgets",
        why="The best score and the bad epochs of ReduceLROnPlateau begin anew.",
        family=FAMILY,
        reports=("sched_inner",),
        inject=_plateau_forgets,
        expect=_of_a_plateau,
        specs={"schedule": "plateau"},
    ),
    Fault(
        name="schedule-of-another-function",
        why="The function of a LambdaLR is not saved and is built with other values.",
        family=FAMILY,
        reports=("sched_inner",),
        inject=_other_function,
        expect=lambda training: Expected(
            ("CK602",), step=training.spec.at + 1, stages=("schedule",), keys=("_last_lr[0]", "_last_lr[1]")
        ),
        specs={"schedule": "lambda"},
    ),
    Fault(
        name="schedule-warms-up-with-every-process",
        why="A warm-up by hand counts the steps of this process.",
        family=FAMILY,
        reports=("sched_missing",),
        inject=_warm_up_of_the_process,
        expect=_warmed_again,
        specs={"schedule": "none", "window": 1},
    ),
)

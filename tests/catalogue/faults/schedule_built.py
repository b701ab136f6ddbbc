"""A schedule that is built when the optimizer is loaded already: its constructor writes rates."""

from typing import Any, Final

from torch.optim import lr_scheduler as schedules

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.faults.schedule import FAMILY, keys_of, place
from tests.catalogue.making import make_schedule
from tests.catalogue.training import Training


def _built_anew(training: Training, **options: Any) -> Any:
    """A schedule that is made now, over the optimizer as it is; it takes the old one's place."""
    made = make_schedule(training.spec, training.optimizer)
    for name, value in options.items():
        setattr(made, name, value)
    training.schedule = made
    if training.declared is not None:
        training.declared.scheduler = made
    return made


def _built_late(training: Training) -> None:
    training.restore_schedule = lambda state: _built_anew(training).load_state_dict(state)  # type: ignore[method-assign]


def _count_in_the_constructor(training: Training) -> None:
    def restore(state: Any) -> None:
        made = schedules.ExponentialLR(training.optimizer, gamma=0.95, last_epoch=state["last_epoch"])
        training.schedule = made
        if training.declared is not None:
            training.declared.scheduler = made

    training.restore_schedule = restore  # type: ignore[method-assign]


def _base_from_decayed(training: Training) -> None:
    def restore(state: Any) -> None:
        for group in training.optimizer.param_groups:
            group.pop("initial_lr")
        decayed = [group["lr"] for group in training.optimizer.param_groups]
        _built_anew(training, last_epoch=state["last_epoch"])
        for group, rate in zip(training.optimizer.param_groups, decayed, strict=True):
            group["lr"] = rate

    training.restore_schedule = restore  # type: ignore[method-assign]


def _moved_late(training: Training) -> Expected:
    return Expected(("CK602",), keys=("lr",), says=("built after the optimizer was loaded", "loaded_rate"))


def _late(name: str, schedule: str) -> Fault:
    return Fault(
        name=name,
        why="The scheduler is built after the optimizer was loaded: its constructor writes a rate.",
        family=FAMILY,
        reports=("sched_ctor",),
        inject=_built_late,
        expect=_moved_late,
        specs={"schedule": schedule},
    )


FAULTS: Final = (
    _late("schedule-built-late-multiplies-the-rate", "linear"),
    _late("schedule-built-late-evaluates-its-function-at-0", "lambda"),
    _late("schedule-built-late-starts-its-cycle", "one-cycle"),
    Fault(
        name="schedule-count-given-to-the-constructor",
        why="`last_epoch=steps` in the constructor, which steps once more.",
        family=FAMILY,
        reports=("sched_last_epoch", "sched_off"),
        inject=_count_in_the_constructor,
        expect=lambda training: place(training, 1),
        specs={"schedule": "exponential"},
    ),
    Fault(
        name="schedule-over-a-decayed-base",
        why="initial_lr is not in the groups, so that a new scheduler takes the decayed rate for its base.",
        family=FAMILY,
        reports=("sched_last_epoch",),
        inject=_base_from_decayed,
        expect=lambda training: Expected(
            ("CK602",), keys=tuple(keys_of(training.schedule.state_dict())), says=("base_lrs[0]",)
        ),
        specs={"schedule": "lambda"},
    ),
)

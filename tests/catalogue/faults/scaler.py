"""The gradient scaler: its scale, its counter, and the updates that a fresh one skips."""

from typing import Any, Final

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import Training

FAMILY: Final = "scaler"
HALF: Final = {"amp": "fp16"}
HIGH: Final = 2.0**20


def _scaler(training: Training) -> Any:
    assert training.scaler is not None
    return training.scaler


def _not_loaded(training: Training) -> None:
    training.restore_scaler = lambda state: None  # type: ignore[method-assign]


def _with(training: Training, **entries: Any) -> None:
    training.restore_scaler = (  # type: ignore[method-assign]
        lambda state: _scaler(training).load_state_dict({**state, **entries})
    )


def _halved(training: Training) -> None:
    training.restore_scaler = (  # type: ignore[method-assign]
        lambda state: _scaler(training).load_state_dict({**state, "scale": state["scale"] / 2})
    )


def _fresh_and_high(training: Training) -> None:
    _scaler(training).load_state_dict({**_scaler(training).state_dict(), "scale": HIGH})
    _not_loaded(training)


def _before_its_update(training: Training) -> None:
    update, before = training.update, {}

    def noted(loss: float) -> None:
        before.update(_scaler(training).state_dict())
        update(loss)

    training.update = noted  # type: ignore[method-assign]
    training.before_save.append(lambda checkpoint: checkpoint.update(scaler=dict(before)))


def _was(training: Training, loaded: dict[str, Any], *keys: str) -> Expected:
    saved = _scaler(training).state_dict()
    return Expected(("CK608",), keys=keys, says=tuple(f"{key} was {saved[key]}, is {loaded[key]}" for key in keys))


FAULTS: Final = (
    Fault(
        name="scaler-not-loaded",
        why="scaler.state_dict() is not in the checkpoint.",
        family=FAMILY,
        reports=("scaler",),
        inject=_not_loaded,
        expect=lambda training: Expected(("CK608",), keys=("scale", "_growth_tracker")),
        specs=HALF,
    ),
    Fault(
        name="scaler-without-its-counter",
        why="The scale is saved as a number, the steps since it last grew are not.",
        family=FAMILY,
        reports=("scaler",),
        inject=lambda training: _with(training, _growth_tracker=0),
        expect=lambda training: _was(training, {"_growth_tracker": 0}, "_growth_tracker"),
        specs=HALF,
    ),
    Fault(
        name="scaler-halved-at-load",
        why="The load halves the scale to be on the safe side.",
        family=FAMILY,
        inject=_halved,
        expect=lambda training: _was(training, {"scale": _scaler(training).get_scale() / 2}, "scale"),
        specs=HALF,
    ),
    Fault(
        name="scaler-with-another-interval",
        why="The growth interval of the command line wins over that of the file.",
        family=FAMILY,
        inject=lambda training: _with(training, growth_interval=2000),
        expect=lambda training: _was(training, {"growth_interval": 2000}, "growth_interval"),
        specs=HALF,
    ),
    Fault(
        name="scaler-anew-overflows",
        why="A new scaler starts too high: it overflows, and skips updates.",
        family=FAMILY,
        reports=("scaler",),
        inject=_fresh_and_high,
        expect=lambda training: Expected(("CK608",), keys=("scale", "_growth_tracker"), says=(f"is {HIGH}",)),
        specs={**HALF, "window": 1},
    ),
    Fault(
        name="scaler-saved-before-its-update",
        why="The scaler's state is taken before scaler.update() of the step that is saved.",
        family=FAMILY,
        inject=_before_its_update,
        expect=lambda training: Expected(("CK608",), keys=("scale", "_growth_tracker")),
        specs=HALF,
    ),
)

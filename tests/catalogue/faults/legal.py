"""Differences that a resume may have, because nothing that follows depends on them: they must pass."""

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from tests.catalogue.fault import CLEAN, Expected, Fault
from tests.catalogue.making import WITHOUT_FOREACH, make_optimizer, make_schedule
from tests.catalogue.spec import Spec
from tests.catalogue.training import Checkpoint, Training

Change = Callable[[Training], object]


def _when_resumed(change: Change) -> Callable[[Training], None]:
    return lambda training: training.after_restore.append(lambda: change(training))


def _reverse_groups(training: Training) -> None:
    training.optimizer.param_groups.reverse()


def _reverse_members(training: Training) -> None:
    for group in training.optimizer.param_groups:
        for key in ("params", "param_names"):
            group[key].reverse()


def _clears_first(training: Training) -> None:
    """Gradients are cleared at the start of a step, so that those of the last step are there when it saves."""
    clear = training.optimizer.zero_grad
    training.optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore
    training.before_step.append(lambda s: clear())
    training.restore_gradients = lambda state: None  # type: ignore[method-assign]


def _undrawn(training: Training) -> None:
    training.augmented = lambda features, labels: (features, labels)  # type: ignore[method-assign]
    training.restore_numpy = lambda state: np.random.seed(999)  # type: ignore[method-assign]


def _foreach(training: Training) -> None:
    for group in training.optimizer.param_groups:
        group["foreach"] = True


def _clock(training: Training) -> None:
    training.loop.state_dict = lambda: {  # type: ignore[method-assign]
        "completed": training.loop.completed, "smoothing": training.loop.smoothing, "seconds": time.monotonic(),
    }  # fmt: skip


def _widened(training: Training) -> None:
    def widen(saved: Checkpoint) -> None:
        saved["model"] = {name: one.double() if one.is_floating_point() else one
                          for name, one in saved["model"].items()}  # fmt: skip

    training.before_save.append(widen)


def _through_numpy(training: Training) -> None:
    def convert(saved: Checkpoint) -> None:
        saved["model"] = {name: one.numpy().copy() for name, one in saved["model"].items()}

    def restore(state: Any) -> None:
        training.model.load_state_dict({name: torch.from_numpy(np.asarray(one)) for name, one in state.items()})

    training.before_save.append(convert)
    training.restore_model = restore  # type: ignore[method-assign]


def _rebuilt(training: Training) -> None:
    """The load builds optimizer and schedule anew, before it restores them."""
    made: list[Any] = []
    run, restore = training.run, training.restore_optimizer

    def build(state: Any) -> None:
        training.optimizer = made[0].optimizer = make_optimizer(training.spec, training.model)
        training.schedule = made[0].scheduler = make_schedule(training.spec, training.optimizer)
        training.optimizer.load_state_dict(state)

    def keep() -> Any:
        made.append(run())
        return made[0]

    training.restore_optimizer, training.run = build, keep  # type: ignore[method-assign]
    del restore


def _compiled(training: Training) -> None:
    training.forward = torch.compile(training.model, backend="eager")


def _evaluates_well(training: Training) -> None:
    """The save evaluates, and puts modes and generators back."""

    def evaluate(saved: Checkpoint) -> None:
        kept = torch.get_rng_state()
        training.model.eval()
        with torch.no_grad():
            training.model(training.data.features + torch.randn_like(training.data.features))
        training.model.train()
        torch.set_rng_state(kept)

    training.before_save.append(evaluate)


def _draws_before_restoring(training: Training) -> None:
    training.before_restore.append(lambda saved: (torch.rand(3), np.random.rand(3)))


def _more_in_the_file(training: Training) -> None:
    training.before_save.append(
        lambda saved: saved.update(arguments={"lr": 1.0}, history=torch.randn(3, generator=torch.Generator()))
    )


def _prefixed(training: Training) -> None:
    restore = training.restore_model
    training.before_save.append(
        lambda saved: saved.update(model={f"module.{name}": one for name, one in saved["model"].items()})
    )
    training.restore_model = lambda state: restore(  # type: ignore[method-assign]
        {name.removeprefix("module."): one for name, one in state.items()}
    )


def _anomalies(training: Training) -> None:
    torch.autograd.set_detect_anomaly(True)


def _new_storage(training: Training) -> None:
    """State tensors are copied into memory of their own, in another layout of the same values."""
    for state in training.optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.ndim > 1:
                state[key] = value.T.contiguous().T


def _passes(training: Training) -> Expected:
    return Expected((), fails=False)


def _legal(name: str, why: str, inject: Callable[[Training], None], *, specs: dict[str, object] | None = None,
           applies: Callable[[Spec], bool] = lambda spec: True) -> Fault:  # fmt: skip
    return Fault(name, why, CLEAN, inject, _passes, applies=applies, specs=specs or {})


OTHER_BY_FOREACH: Final = frozenset({"NAdam"})
"""Optimizers of which torch's foreach update gives other last bits than its for-loop."""

FAULTS: Final = (
    _legal("legal-groups-in-another-order", "The load reverses the groups, state bound by name.",
           _when_resumed(_reverse_groups), specs={"schedule": "none", "groups": 2}),
    _legal("legal-members-in-another-order", "The load reverses the parameters of each group, state bound by name.",
           _when_resumed(_reverse_members)),
    _legal("legal-gradients-left-over", "Gradients that the next step clears are not restored.",
           _clears_first, specs={"window": 1}),
    _legal("legal-idle-generator-elsewhere", "A generator that nothing draws from is in another state.", _undrawn),
    _legal("legal-foreach-in-one-run", "The resumed run updates by foreach, with equal results.",
           _when_resumed(_foreach), applies=lambda spec: spec.optimizer not in {*WITHOUT_FOREACH, *OTHER_BY_FOREACH}),
    _legal("legal-a-clock-in-the-state", "A declared object tells the time.", _clock),
    _legal("legal-widened-and-narrowed-back", "The file holds float64 values of float32 weights.", _widened),
    _legal("legal-through-numpy", "The file holds numpy arrays.", _through_numpy),
    _legal("legal-rebuilt-by-the-load", "The load builds optimizer and schedule anew, then restores them.", _rebuilt),
    _legal("legal-compiled-in-one-run", "The resumed run is compiled, by a backend that changes nothing.",
           _when_resumed(_compiled)),
    _legal("legal-save-that-evaluates", "The save evaluates, and puts modes and generators back.", _evaluates_well),
    _legal("legal-load-that-draws-first", "The load draws before it restores the generators.", _draws_before_restoring),
    _legal("legal-more-in-the-file", "The file has entries that no load reads.", _more_in_the_file),
    _legal("legal-prefix-added-and-stripped", "The file's names have a prefix, which the load strips.", _prefixed),
    _legal("legal-anomaly-detection-on", "The resumed run looks for anomalies in backward.", _when_resumed(_anomalies)),
    _legal("legal-state-in-other-memory", "The load lays moments out in another order in memory.",
           _when_resumed(_new_storage)),
)  # fmt: skip

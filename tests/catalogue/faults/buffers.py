"""Buffers: BatchNorm statistics that decide what evaluation computes, and tensors that no checkpoint holds."""

from typing import Any, Final

import torch
from torch import nn

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import Training

FAMILY: Final = "buffers"
NORM: Final = {"model": "norm", "freeze": "none"}
STATISTICS: Final = tuple(
    f"{module}.{name}"
    for module in ("statistics", "more")
    for name in ("running_mean", "running_var", "num_batches_tracked")
)


def _keeps(training: Training, *names: str) -> None:
    """The load leaves these entries of the model as they are."""

    def restore(state: Any) -> None:
        left = {name: value for name, value in state.items() if name not in names}
        training.model.load_state_dict(left, strict=False)

    training.restore_model = restore  # type: ignore[method-assign]


def _of_the_step_before(training: Training) -> None:
    kept: dict[str, torch.Tensor] = {}

    def note(s: int) -> None:
        kept.update((name, one.clone()) for name, one in training.model.named_buffers())

    training.before_step.append(note)
    training.before_save.append(lambda checkpoint: checkpoint.update(model={**checkpoint["model"], **kept}))


def _statistics(training: Training) -> nn.BatchNorm1d:
    found = training.model.get_submodule("statistics")
    assert isinstance(found, nn.BatchNorm1d)
    return found


def _other_momentum(training: Training) -> None:
    training.after_restore.append(lambda: setattr(_statistics(training), "momentum", 0.3))


def _of_no_checkpoint(training: Training) -> None:
    training.model.register_buffer("window", torch.linspace(0, 1, 9), persistent=False)
    training.after_restore.append(lambda: training.model.get_buffer("window").copy_(torch.linspace(0, 0.9, 9)))


def _train_calls_wake_it(training: Training) -> None:
    """A frozen norm is set to eval once, when it is frozen; `model.train()` of the resumed run takes that back."""
    _statistics(training).eval()
    training.after_restore.append(lambda: [training.model.train(), None][1])


def _average_pooled(training: Training) -> None:
    """Statistics are reset and gathered anew over some batches after the load."""

    def recalibrate() -> None:
        state = torch.get_rng_state()
        for module in training.model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.reset_running_stats()
        with torch.no_grad():
            training.model(training.data.features)
        torch.set_rng_state(state)

    training.after_restore.append(recalibrate)


def _differ(*keys: str, says: tuple[str, ...] = ()) -> Expected:
    return Expected(("CK605",), keys=keys, says=says)


FAULTS: Final = (
    Fault(
        name="buffers-not-saved",
        why="Only named_parameters() are saved.",
        family=FAMILY,
        reports=("bn_drift",),
        inject=lambda training: _keeps(training, *STATISTICS),
        expect=lambda training: _differ(*STATISTICS, says=("6 buffers",)),
        specs=NORM,
    ),
    Fault(
        name="buffers-of-one-module-missed",
        why="The prefix of one norm is another in the file, and strict=False says nothing.",
        family=FAMILY,
        inject=lambda training: _keeps(training, "more.running_mean", "more.running_var", "more.num_batches_tracked"),
        expect=lambda training: _differ(*STATISTICS[3:], says=("3 buffers",)),
        specs=NORM,
    ),
    Fault(
        name="buffers-without-their-count",
        why="num_batches_tracked is left out as an integer among weights.",
        family=FAMILY,
        inject=lambda training: _keeps(training, "statistics.num_batches_tracked", "more.num_batches_tracked"),
        expect=lambda training: _differ(STATISTICS[2], STATISTICS[5], says=("2 buffers",)),
        specs=NORM,
    ),
    Fault(
        name="buffers-of-the-step-before",
        why="Statistics are copied before the step that the weights are saved after.",
        family=FAMILY,
        inject=_of_the_step_before,
        expect=lambda training: _differ(*STATISTICS, says=("6 buffers",)),
        specs=NORM,
    ),
    Fault(
        name="buffers-gathered-anew",
        why="Statistics are reset and gathered over some batches at the start.",
        family=FAMILY,
        inject=_average_pooled,
        expect=lambda training: _differ(*STATISTICS, says=("6 buffers",)),
        specs=NORM,
    ),
    Fault(
        name="buffers-moved-by-another-momentum",
        why="The norm's momentum is set for a short fine-tuning, in the resumed run only.",
        family=FAMILY,
        inject=_other_momentum,
        expect=lambda training: Expected(
            ("CK605",), step=training.spec.at + 1, stages=("buffers",), keys=STATISTICS[:2]
        ),
        specs=NORM,
    ),
    Fault(
        name="buffers-of-no-checkpoint-built-otherwise",
        why="A buffer that is not persistent is computed from another setting.",
        family=FAMILY,
        inject=_of_no_checkpoint,
        expect=lambda training: _differ("window", says=("1 buffer",)),
        applies=lambda spec: not spec.ema,  # the average has the model's buffers as they were when it was made
    ),
    Fault(
        name="buffers-of-a-frozen-norm-move-again",
        why="model.train() after the load takes back the eval mode of a frozen norm.",
        family=FAMILY,
        reports=("bn_drift",),
        inject=_train_calls_wake_it,
        expect=lambda training: Expected(("CK601",), says=("statistics", "mode")),
        specs=NORM,
    ),
)

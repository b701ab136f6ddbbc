"""State that came back through fewer bits."""

from typing import Any, Final

import torch
from torch import Tensor

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.slots import MOMENTUM_ONLY, change_tensors, keeps_state, tensors, with_state
from tests.catalogue.spec import Spec
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "numbers"


def _narrowed(training: Training, dtype: str, *codes: str) -> Expected:
    return Expected(codes or ("CK504",), parameters=with_state(training), says=(dtype,) if not codes else ())


SECOND: Final = ("exp_avg_sq", "square_avg", "sum")


def _second_underflows(training: Training) -> None:
    training.clip = 0.05

    def halve(checkpoint: Checkpoint) -> None:
        state = {number: dict(entries) for number, entries in checkpoint["optimizer"]["state"].items()}
        for entries, key in tensors(state):
            if key in SECOND:
                entries[key] = entries[key].half()
        checkpoint["optimizer"]["state"] = state

    training.before_save.append(halve)


MADE_AT_ONCE: Final = frozenset({"Adagrad"})
"""Optimizers that make their state, here still in float32, when they are built."""


def _in_float64(training: Training) -> None:
    training.model.double()
    augmented = training.augmented

    def wide(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        features, labels = augmented(features, labels)
        return features.double(), labels

    training.augmented = wide  # type: ignore[method-assign]
    training.before_save.append(change_tensors(lambda one: one.float()))


def _eight_bits(one: Tensor) -> Tensor:
    """Through int8 by the greatest magnitude of the tensor, and back."""
    scale = one.abs().max() / 127
    return (one / scale).round().to(torch.int8).float() * scale if scale > 0 else one


def _left_narrow(training: Training) -> None:
    def narrow() -> None:
        for entries, key in tensors(training.optimizer.state):  # type: ignore[arg-type]
            entries[key] = entries[key].bfloat16()

    training.after_restore.append(narrow)


def _wide_momentum(training: Training) -> None:
    """Weights in bfloat16 with momentum in float32, which torch casts to the weights' dtype when it loads."""
    training.model.bfloat16()
    augmented = training.augmented

    def narrow(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        features, labels = augmented(features, labels)
        return features.bfloat16(), labels

    def widen(*_: Any) -> None:
        for state in training.optimizer.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"] = state["momentum_buffer"].float()

    training.augmented = narrow  # type: ignore[method-assign]
    training.optimizer.register_step_post_hook(widen)


def _plain(spec: Spec) -> bool:
    return spec.amp == "none" and not spec.ema


FAULTS: Final = (
    Fault("moments-through-bfloat16", "Moments are saved in half the bytes.", FAMILY,
          lambda training: training.before_save.append(change_tensors(lambda one: one.bfloat16())),
          lambda training: _narrowed(training, "bfloat16"), reports=("dtype_down",), applies=keeps_state),
    Fault("second-moments-underflow", "Second moments of small gradients are saved as float16, and become zero.",
          FAMILY, _second_underflows, lambda training: _narrowed(training, "to float16"), reports=("v_underflow",),
          applies=lambda spec: spec.optimizer not in (*MOMENTUM_ONLY, "Adamax", "Rprop", "ASGD", "Adafactor")),
    Fault("moments-of-float64-through-float32", "A training in float64 saves its moments as float32.", FAMILY,
          _in_float64, lambda training: _narrowed(training, "float32"), reports=("dtype_down",),
          applies=lambda spec: keeps_state(spec) and _plain(spec) and spec.optimizer not in MADE_AT_ONCE),
    Fault("moments-through-int8", "Moments are quantised in the file, by the greatest of each tensor.", FAMILY,
          lambda training: training.before_save.append(change_tensors(_eight_bits)),
          lambda training: _narrowed(training, "int8", "CK504", "CK601"), applies=keeps_state),
    Fault("moments-left-in-bfloat16", "The load casts moments and never casts them back.", FAMILY,
          _left_narrow, lambda training: _narrowed(training, "bfloat16"), reports=("dtype_down",), applies=keeps_state),
    Fault("wide-momentum-of-narrow-weights", "Momentum is float32, weights bfloat16: load_state_dict casts it down.",
          FAMILY, _wide_momentum, lambda training: _narrowed(training, "bfloat16"), reports=("dtype_down",),
          applies=lambda spec: spec.optimizer in MOMENTUM_ONLY and keeps_state(spec) and _plain(spec)),
)  # fmt: skip

"""Optimizers around optimizers: what they keep of their own."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.making import make_schedule
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "wrappers"


def _copies(training: Training) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in training.model.named_parameters()}


def _slow_weights(training: Training) -> None:
    """Each second update goes half of the way back to slow weights, which no state_dict holds."""
    slow, updates = _copies(training), [0]

    @torch.no_grad()
    def look_ahead(*_: Any) -> None:
        updates[0] += 1
        if updates[0] % 2 == 0:
            for name, one in training.model.named_parameters():
                if one.requires_grad:
                    one.copy_(slow[name].lerp_(one, 0.5))

    training.optimizer.register_step_post_hook(look_ahead)


def _masters(training: Training) -> None:
    """Copies of the weights, which are what is trained, are made when the optimizer is built, before the load."""
    masters = _copies(training)

    @torch.no_grad()
    def take(*_: Any) -> None:
        for name, one in training.model.named_parameters():
            one.copy_(masters[name])

    @torch.no_grad()
    def give(*_: Any) -> None:
        for name, one in training.model.named_parameters():
            masters[name].copy_(one)

    training.optimizer.register_step_pre_hook(take)
    training.optimizer.register_step_post_hook(give)


class Outer(Optimizer):
    """Steps an inner optimizer, with which it shares the list of groups until a load gives it another one."""

    def __init__(self, inner: Optimizer) -> None:
        super().__init__([{"params": [one for group in inner.param_groups for one in group["params"]]}], {})
        self.inner = inner
        self.param_groups = inner.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """An update by the inner optimizer."""
        self.inner.step()


def _wrapped(training: Training) -> None:
    training.optimizer = Outer(training.optimizer)
    training.schedule = make_schedule(training.spec, training.optimizer)


def _other_mode(training: Training) -> None:
    """Before a save the averages take the weights' place, as for an evaluation; the load does not turn back."""
    averages = _copies(training)

    @torch.no_grad()
    def average(*_: Any) -> None:
        for name, one in training.model.named_parameters():
            averages[name].lerp_(one, 0.25)

    def change(checkpoint: Checkpoint) -> None:
        checkpoint["trained"] = checkpoint["model"]
        tied = {alias: averages[name] for name, one in training.model.named_parameters()
                for alias,
          other in training.model.named_parameters(remove_duplicate=False) if other is one}  # fmt: skip
        checkpoint["model"] = {**checkpoint["model"], **tied}

    training.optimizer.register_step_post_hook(average)
    training.before_save.append(change)


def _update_differs(training: Training, step: int = 6) -> Expected:
    return Expected(("CK607",), step=step, stages=("state", "param"))


FAULTS: Final = (
    Fault("slow-weights-not-saved",
          "A wrapper's state_dict is that of the optimizer inside; its slow weights are lost.",
          FAMILY, # With a window of two, step 6 is the third update and no run's second; step 8 is.
          _slow_weights, lambda training: _update_differs(training, 6 if training.spec.window == 1 else 8),
          reports=("wrap",)),
    Fault("masters-made-before-the-load",
          "An optimizer trains copies of the weights that it made before they were loaded.",
          FAMILY, _masters, _update_differs, reports=("master",)),
    Fault("inner-optimizer-not-restored", "A load gives the wrapper groups that the optimizer inside does not have.",
          FAMILY, _wrapped, _update_differs, reports=("wrap",)),
    Fault("saved-in-the-mode-of-evaluation", "The optimizer's averages were in the model when it was saved.", FAMILY,
          _other_mode, lambda training: Expected(("CK601",), parameters=tuple(_copies(training))), reports=("mode",)),
)  # fmt: skip

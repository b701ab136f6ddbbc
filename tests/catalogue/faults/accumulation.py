"""Gradients that are gathered over a window of micro-batches, and the count of them."""

from typing import Any, Final

import torch

from tests.catalogue.fault import Expected, Fault, where_updates_part
from tests.catalogue.training import Training

FAMILY: Final = "accumulation"
OPEN: Final = {"window": 2}
"""With a save after step 5, one micro-batch of two is gathered."""


def _lost(training: Training) -> None:
    training.restore_gradients = lambda state: None  # type: ignore[method-assign]


def _zeroed(training: Training) -> None:
    training.after_restore.append(
        lambda: [one.grad.zero_() for one in training.model.parameters() if one.grad is not None] and None
    )


def _twice(training: Training) -> None:
    plain = training.restore_gradients

    def restore(state: Any) -> None:
        plain(state)
        for name, one in training.model.named_parameters():
            if name in state:
                one.grad.add_(state[name])

    training.restore_gradients = restore  # type: ignore[method-assign]


def _one_lost(training: Training) -> None:
    plain = training.restore_gradients
    training.restore_gradients = (  # type: ignore[method-assign]
        lambda state: plain({name: value for name, value in state.items() if name != "head.weight"})
    )


def _left_over(training: Training) -> None:
    """A pass that wakes kernels up or checks the memory leaves its gradients."""

    def warm() -> None:
        state = torch.get_rng_state()
        buffers = {name: one.clone() for name, one in training.model.named_buffers()}
        training.backward(training.loss(training.data.features, training.data.labels))
        for name, one in training.model.named_buffers():
            one.copy_(buffers[name])
        torch.set_rng_state(state)

    training.after_restore.append(warm)


def _window_of_the_process(training: Training) -> None:
    """Updates are made by a count of this process's micro-batches; what is gathered is kept."""
    made, plain = 0, training.step

    def step(s: int) -> float:
        nonlocal made
        made += 1
        if not training.resumed:
            return plain(s)
        smoothing = 0.01 * (s % 5)
        loss = plain(made)
        training.loop.completed, training.loop.smoothing = s, smoothing
        return loss

    training.step = step  # type: ignore[method-assign]


def _gathered(training: Training) -> tuple[str, ...]:
    return tuple(name for name, one in training.model.named_parameters() if one.grad is not None)


def _trained(training: Training) -> tuple[str, ...]:
    return tuple(name for name, one in training.model.named_parameters() if one.requires_grad)


def _off(training: Training) -> Expected:
    return Expected(("CK613",), parameters=_gathered(training), says=(str(len(_gathered(training))),))


FAULTS: Final = (
    Fault(
        name="gradients-of-the-window-lost",
        why="A save in the middle of a window leaves the gradients out.",
        family=FAMILY,
        reports=("accum",),
        inject=_lost,
        expect=_off,
        specs=OPEN,
    ),
    Fault(
        name="gradients-of-the-window-zeroed",
        why="The loop clears gradients to zero when it starts.",
        family=FAMILY,
        reports=("accum",),
        inject=_zeroed,
        expect=_off,
        specs=OPEN,
    ),
    Fault(
        name="gradients-of-the-window-twice",
        why="The load adds the gradients to those that are there.",
        family=FAMILY,
        inject=_twice,
        expect=_off,
        specs=OPEN,
    ),
    Fault(
        name="gradient-of-one-parameter-lost",
        why="The gradient of one parameter is not found by its name.",
        family=FAMILY,
        inject=_one_lost,
        expect=lambda training: Expected(("CK613",), parameters=("head.weight",), says=("1 parameter",)),
        applies=lambda spec: spec.model != "tied",
        specs=OPEN,
    ),
    Fault(
        name="gradients-left-over-at-load",
        why="A pass at the start wakes kernels up and leaves its gradients, to which the first step adds.",
        family=FAMILY,
        inject=_left_over,
        expect=lambda training: Expected(("CK613",), parameters=_trained(training)),
        specs={"window": 1},
    ),
    Fault(
        name="gradients-left-over-where-a-window-begins",
        why="The same, where the save was at the end of a window.",
        family=FAMILY,
        inject=_left_over,
        expect=lambda training: Expected(("CK613",), parameters=_trained(training)),
        specs={"window": 2, "resume_at": (4,)},
    ),
    Fault(
        name="window-counted-by-the-process",
        why="The count of micro-batches in the window begins with the process; the gradients are kept.",
        family=FAMILY,
        reports=("accum",),
        inject=_window_of_the_process,
        expect=lambda training: Expected(("CK612",), step=training.spec.at + 1, stages=(where_updates_part(training),)),
        specs=OPEN,
    ),
)

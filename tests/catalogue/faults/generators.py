"""Random generators: lost, seeded again, of another moment, or drawn from after they were restored."""

import random
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import Checkpoint, Training

FAMILY: Final = "generators"
SEED: Final = 0


def _forgets(*sections: str) -> Callable[[Training], None]:
    def inject(training: Training) -> None:
        for section in sections:
            setattr(training, f"restore_{section}", lambda state: None)

    return inject


def _is_off(*which: str, says: tuple[str, ...] = (), beside: tuple[str, ...] = ()) -> Callable[[Training], Expected]:
    """The generators are in another state right after the load."""
    return lambda training: Expected(("CK603",), keys=which, says=(*which, *says), beside=beside)


def _seeded_again(training: Training) -> None:
    training.restore_torch = lambda state: torch.manual_seed(SEED)  # type: ignore[method-assign]


def _layer_built_after(training: Training) -> None:
    training.after_restore.append(lambda: [nn.Linear(3, 3), None][1])


def _iterator_drawn_after(training: Training) -> None:
    training.after_restore.append(lambda: [iter(DataLoader([1, 2, 3, 4])), None][1])  # type: ignore[arg-type]


def _of_the_epochs_start(training: Training) -> None:
    kept: dict[str, Tensor] = {}

    def note(s: int) -> None:
        if s == 1:
            kept["torch"] = torch.get_rng_state()

    training.before_step.append(note)
    training.before_save.append(lambda checkpoint: checkpoint.update(kept))


def _of_another_rank(training: Training) -> None:
    def exchange(checkpoint: Checkpoint) -> None:
        checkpoint["python"] = random.Random(SEED + 1).getstate()

    training.before_save.append(exchange)


def _numpy_by_its_keys_alone(training: Training) -> None:
    def restore(state: Any) -> None:
        np.random.set_state((state[0], state[1], 624))

    training.restore_numpy = restore  # type: ignore[method-assign]


def _noise_of_its_own(training: Training) -> None:
    own, plain = torch.Generator().manual_seed(SEED), training.augmented

    def noisy(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        features, labels = plain(features, labels)
        return features + 0.1 * torch.randn(features.shape, generator=own), labels

    training.augmented = noisy  # type: ignore[method-assign]


def _dropout_of_its_own(training: Training) -> None:
    own = torch.Generator().manual_seed(SEED)

    def drop(module: nn.Module, args: object, scores: Tensor) -> Tensor:
        return scores * (torch.rand(scores.shape, generator=own) > 0.2)

    training.model.get_submodule("head").register_forward_hook(drop)


def _first_step_draws(training: Training) -> None:
    def draw(s: int) -> None:
        if training.resumed and s == training.spec.at + 1:
            torch.rand(1)

    training.before_step.append(draw)


def _seeds_by_steps_of_the_process(training: Training) -> None:
    made = 0

    def seed(s: int) -> None:
        nonlocal made
        torch.manual_seed(1000 + made)
        made += 1

    training.before_step.append(seed)


def _within(key: str, *words: str) -> Callable[[Training], Expected]:
    """The generator is where it was when the first resumed step begins, and no more when it ends."""

    def expect(training: Training) -> Expected:
        stages = ("loss",) if training.spec.model != "norm" else ("loss", "buffers")
        return Expected(("CK603",), step=training.spec.at + 1, stages=stages, keys=(key,), says=(key, *words))

    return expect


def _after(code: str, stage: str, *words: str) -> Callable[[Training], Expected]:
    return lambda training: Expected((code,), step=training.spec.at + 1, stages=(stage,), says=words)


LEFT: Final = ("CK205",)

FAULTS: Final = (
    Fault(
        name="generator-of-torch-lost",
        why="Torch's generator is not in the checkpoint.",
        family=FAMILY,
        reports=("rng",),
        inject=_forgets("torch"),
        expect=_is_off("torch", beside=LEFT),
    ),
    Fault(
        name="generator-of-numpy-lost",
        why="Numpy's generator is not in the checkpoint.",
        family=FAMILY,
        reports=("rng",),
        inject=_forgets("numpy"),
        expect=_is_off("numpy", beside=LEFT),
    ),
    Fault(
        name="generator-of-python-lost",
        why="Python's generator is not in the checkpoint.",
        family=FAMILY,
        reports=("rng",),
        inject=_forgets("python"),
        expect=_is_off("python", beside=LEFT),
    ),
    Fault(
        name="generators-all-lost",
        why="No generator is in the checkpoint.",
        family=FAMILY,
        reports=("rng",),
        inject=_forgets("torch", "numpy", "python"),
        expect=lambda training: Expected(
            ("CK603",), keys=("torch", "numpy", "python"), says=("torch", "numpy", "python"), beside=LEFT
        ),
    ),
    Fault(
        name="generator-seeded-again",
        why="The resumed run sets the seed once more in place of the state.",
        family=FAMILY,
        reports=("rng",),
        inject=_seeded_again,
        expect=_is_off("torch"),
    ),
    Fault(
        name="generator-restored-before-a-layer-is-built",
        why="A layer that is built after the generators were restored draws its weights from them.",
        family=FAMILY,
        reports=("rng_order",),
        inject=_layer_built_after,
        expect=_is_off("torch"),
    ),
    Fault(
        name="generator-restored-before-an-iterator-is-made",
        why="iter(DataLoader) draws a base seed after the generators were restored.",
        family=FAMILY,
        reports=("rng_order",),
        inject=_iterator_drawn_after,
        expect=_is_off("torch"),
    ),
    Fault(
        name="generator-of-the-first-step",
        why="The state in the checkpoint was taken when the epoch began.",
        family=FAMILY,
        reports=("rng",),
        inject=_of_the_epochs_start,
        expect=_is_off("torch", says=("where step 1 of the uninterrupted run began",)),
    ),
    Fault(
        name="generator-of-another-rank",
        why="Each rank loads the generators that rank 1 saved.",
        family=FAMILY,
        reports=("rng",),
        inject=_of_another_rank,
        expect=_is_off("python"),
    ),
    Fault(
        name="generator-of-numpy-without-its-place",
        why="The keys of numpy's generator are restored, and not its place in them.",
        family=FAMILY,
        reports=("rng",),
        inject=_numpy_by_its_keys_alone,
        expect=_is_off("numpy"),
    ),
    Fault(
        name="generator-of-the-noise-not-saved",
        why="Noise on the inputs comes from a generator of its own that nobody saves.",
        family=FAMILY,
        reports=("rng",),
        inject=_noise_of_its_own,
        expect=_after("CK604", "inputs", "other data"),
    ),
    Fault(
        name="generator-of-the-dropout-not-saved",
        why="A layer drops with a generator of its own that nobody saves.",
        family=FAMILY,
        reports=("rng",),
        inject=_dropout_of_its_own,
        expect=_after("CK606", "loss", "same inputs"),
    ),
    Fault(
        name="generator-drawn-from-in-the-first-step",
        why="The first step of a resumed run draws once more, for a check or a warm-up.",
        family=FAMILY,
        reports=("rng_order",),
        inject=_first_step_draws,
        expect=_within("torch"),
    ),
    Fault(
        name="generator-seeded-by-the-steps-of-the-process",
        why="Each step sets a seed from a count that begins with the process.",
        family=FAMILY,
        reports=("rng",),
        inject=_seeds_by_steps_of_the_process,
        expect=_within("torch", "step 1"),
    ),
)

"""What is around the training, and training that is not deterministic at all."""

import os
import random
from typing import Final

import torch

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import Training

FAMILY: Final = "environment"


def _plain_precision(training: Training) -> None:
    def leave() -> None:
        training.spec = type(training.spec).from_json(training.spec.to_json().replace('"bf16"', '"none"'))

    training.after_restore.append(leave)


def _own_generator(training: Training) -> None:
    """Augmentation draws from a generator of its own, which nobody seeds."""
    own = random.Random()
    training.augmented = lambda features, labels: (features * (1 + 0.1 * own.random()), labels)  # type: ignore


def _chance(training: Training) -> None:
    """A sum whose order is not fixed: the last bits of one gradient are chance."""

    def disturb(s: int) -> None:
        gradient = training.model.get_parameter("middle.weight").grad
        if gradient is not None:
            gradient.mul_(1 + 1e-6 * int.from_bytes(os.urandom(1), "little"))

    training.between.append(disturb)


def _hash_order(training: Training) -> None:
    """Penalties are weighed by their place in a set of names, whose order is that of this process's hashes."""
    plain, names = training.loss, {f"penalty-{number}" for number in range(9)}

    def loss(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        weights = [place * int(name[-1]) for place, name in enumerate(names)]
        return plain(features, labels) * (1 + 1e-3 * sum(weights))

    training.loss = loss  # type: ignore[method-assign]


def _not_deterministic(*stages: str) -> Expected:
    return Expected(("CK611",), step=1, stages=stages, inconclusive=True)


FAULTS: Final = (
    Fault("autocast-in-one-run", "The resumed run is started without its autocast argument.",
          FAMILY, _plain_precision,
          lambda training: Expected(("CK606",), step=training.spec.at + 1, stages=("buffers", "loss")),
          specs={"amp": "bf16"}, reports=("flag_ignored",)),
    Fault("own-generator-unseeded", "Augmentation draws from a generator that nobody seeds.",
          FAMILY, _own_generator, lambda training: _not_deterministic("inputs"), reports=("noise", "rng"), fresh=True),
    Fault("order-of-summing-by-chance", "A kernel sums in an order that is not fixed.",
          FAMILY, _chance, lambda training: _not_deterministic("grad"), reports=("noise",)),
    Fault("order-of-a-set", "The loss depends on the order of a set of names.",
          FAMILY, _hash_order, lambda training: _not_deterministic("loss"), reports=("noise", "set_order"), fresh=True),
)  # fmt: skip

"""Which parameters could have each other's optimizer state without any shape telling it."""

from ckptcheck.conventions.target_names import signatures
from ckptcheck.optimizers.guessing import guess
from ckptcheck.optimizers.shapes import ShapeTest, Signature
from ckptcheck.state.training_state import Optimizer


def exchangeable(optimizer: Optimizer) -> tuple[tuple[str, ...], ...]:
    """The parameters with state of equal shapes, two or more each; those whose state tells no shape are one class."""
    guessed = guess(optimizer)
    told = signatures(optimizer, ShapeTest(guessed.rows, certain=guessed.certain))
    classes: dict[Signature, list[str]] = {}
    for name in dict.fromkeys(name for group in optimizer.groups for name in group.members):
        if name is not None and optimizer.state.get(name):
            classes.setdefault(told[name], []).append(name)
    return tuple(tuple(names) for names in classes.values() if len(names) > 1)

"""Which parameters could have each other's optimizer state without any shape telling it."""

from ckptcheck.conventions.target_names import signatures
from ckptcheck.optimizers.guessing import guess
from ckptcheck.optimizers.shapes import ShapeTest, Signature
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.training_state import Optimizer


def binding_evidence(checkpoint: Checkpoint) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """For each optimizer whose names are not certain, the parameters that only their order tells apart, class by class.

    Empty for an optimizer whose names are certain: there names tell.
    """
    return tuple(
        () if naming.certain else exchangeable(optimizer)
        for optimizer, naming in zip(checkpoint.state.optimizers, checkpoint.namings, strict=True)
    )


def exchangeable(optimizer: Optimizer) -> tuple[tuple[str, ...], ...]:
    """The parameters with state of equal shapes, two or more each; those whose state tells no shape are one class."""
    guessed = guess(optimizer)
    told = signatures(optimizer, ShapeTest(guessed.rows, certain=guessed.certain))
    classes: dict[Signature, list[str]] = {}
    for name in dict.fromkeys(name for group in optimizer.groups for name in group.members):
        if name is not None and optimizer.state.get(name):
            classes.setdefault(told[name], []).append(name)
    return tuple(tuple(names) for names in classes.values() if len(names) > 1)

"""What is judged: one checkpoint as it lies, and what it is for."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ckptcheck.comparison.survey import Survey
from ckptcheck.optimizers.guessing import Guess
from ckptcheck.state.checkpoint import Checkpoint


class Purpose(StrEnum):
    """What a checkpoint is for. What one purpose demands, the other forbids."""

    RESUME = "resume"
    """A training goes on from it: it must hold all that a resume needs."""
    RELEASE = "release"
    """Others use its weights: it must hold nothing else, and nothing that runs code."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One checkpoint as its files hold it.

    Attributes:
        checkpoint: as its writer's convention explains it.
        purpose: what it is judged for.
        asked: whether the user said so; otherwise its content did.
        classes: what each optimizer's class can be, one for each of the state's.
        survey: what its tensors hold, element by element; None where they were not read.
        freeze: contracts by glob over parameter names; None where none was given.
    """

    checkpoint: Checkpoint
    purpose: Purpose = Purpose.RESUME
    asked: bool = False
    classes: tuple[Guess, ...] = ()
    survey: Survey | None = None
    freeze: Mapping[str, str] | None = None


WHY_NOT: Final[Mapping[str, str]] = {
    "survey": "the tensors were not read",
    "freeze": "no freeze contract was given",
}

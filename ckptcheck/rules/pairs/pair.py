"""What is judged: two checkpoints of one training, the earlier one left."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff
from ckptcheck.comparison.contracts import Broken, NotHeld
from ckptcheck.comparison.survey import Survey
from ckptcheck.rules.pairs.course import Course, course_of


@dataclass(frozen=True, slots=True)
class Pair:
    """Two checkpoints, compared.

    Attributes:
        diff: everything that differs.
        broken: how parameters broke their freeze contracts from the left checkpoint to the right one; None where no
            contract was given.
        not_held: contracts that could not be held against the two.
        freeze: the contract of each parameter that has one.
        surveys: what the tensors of each side hold, the left's first; None where they were not read.
        released: why the right one is judged as a release of the left one's weights; "" where a training goes on.
        course: how the right one follows the left one; found when the pair is made.
    """

    diff: CheckpointDiff
    broken: tuple[Broken, ...] | None = None
    not_held: tuple[NotHeld, ...] = ()
    freeze: Mapping[str, str] = field(default_factory=dict)
    surveys: tuple[Survey | None, Survey | None] = (None, None)
    released: str = ""
    course: Course = field(init=False)

    def __post_init__(self) -> None:
        """Read the counters once, for all rules."""
        object.__setattr__(self, "course", course_of(self.diff))


WHY_NOT: Final[Mapping[str, str]] = {"broken": "no freeze contract was given"}

"""What is judged: two checkpoints of one training, the earlier one left."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff
from ckptcheck.comparison.contracts import Broken


@dataclass(frozen=True, slots=True)
class Pair:
    """Two checkpoints, compared.

    Attributes:
        diff: everything that differs.
        broken: how parameters broke their freeze contracts from the left checkpoint to the right one; None where no
            contract was given.
    """

    diff: CheckpointDiff
    broken: tuple[Broken, ...] | None = None


WHY_NOT: Final[Mapping[str, str]] = {"broken": "no freeze contract was given"}

"""The rules over two checkpoints."""

from typing import Final

from ckptcheck.rules.pairs import binding, completeness, frozen, hyperparameters, lost_parts, numbers, stale, weights
from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Rule

PAIR_RULES: Final[tuple[Rule[Pair], ...]] = (
    *stale.RULES,
    *completeness.RULES,
    *lost_parts.RULES,
    *binding.RULES,
    *hyperparameters.RULES,
    *weights.RULES,
    *frozen.RULES,
    *numbers.RULES,
)

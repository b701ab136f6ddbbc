"""CK4: frozen parameters between two checkpoints."""

from typing import Final

from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Rule

RULES: Final[tuple[Rule[Pair], ...]] = ()

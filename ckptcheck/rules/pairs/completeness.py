"""CK2: what the later checkpoint lacks that the earlier one has."""

from typing import Final

from ckptcheck.rules.pairs.pair import Pair
from ckptcheck.rules.rule import Rule

RULES: Final[tuple[Rule[Pair], ...]] = ()

"""CK5: numbers in one checkpoint."""

from typing import Final

from ckptcheck.rules.rule import Rule
from ckptcheck.rules.stored.stored import Stored

RULES: Final[tuple[Rule[Stored], ...]] = ()

"""CK6, as far as one checkpoint tells: a schedule that does not stand where the training does."""

from typing import Final

from ckptcheck.rules.rule import Rule
from ckptcheck.rules.stored.stored import Stored

RULES: Final[tuple[Rule[Stored], ...]] = ()

"""CK3: what one checkpoint says of groups, order, ties and names."""

from typing import Final

from ckptcheck.rules.rule import Rule
from ckptcheck.rules.stored.stored import Stored

RULES: Final[tuple[Rule[Stored], ...]] = ()

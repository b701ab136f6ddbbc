"""The rules over one checkpoint."""

from typing import Final

from ckptcheck.rules.rule import Rule
from ckptcheck.rules.stored import (
    aliases,
    binding,
    completeness,
    frozen,
    numbers,
    release,
    scales,
    schedule,
    second_copies,
    weights,
)
from ckptcheck.rules.stored.stored import Stored

STORED_RULES: Final[tuple[Rule[Stored], ...]] = (
    *completeness.RULES,
    *release.RULES,
    *binding.RULES,
    *aliases.RULES,
    *frozen.RULES,
    *numbers.RULES,
    *scales.RULES,
    *second_copies.RULES,
    *schedule.RULES,
    *weights.RULES,
)

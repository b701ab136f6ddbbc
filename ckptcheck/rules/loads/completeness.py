"""CK2: what a checkpoint lacks that the training needs."""

from typing import Final

from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.rule import Rule

RULES: Final[tuple[Rule[DryRun], ...]] = ()

"""CK3: what a load binds to what."""

from typing import Final

from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.rule import Rule

RULES: Final[tuple[Rule[DryRun], ...]] = ()

"""CK4: what a load does to frozen parameters."""

from typing import Final

from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.rule import Rule

RULES: Final[tuple[Rule[DryRun], ...]] = ()

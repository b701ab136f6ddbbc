"""CK5 and CK6: values that a load casts, and schedules that will jump."""

from typing import Final

from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.rule import Rule

RULES: Final[tuple[Rule[DryRun], ...]] = ()

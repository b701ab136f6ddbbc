"""The rules over a dry-run."""

from typing import Final

from ckptcheck.rules.loads import binding, completeness, frozen, holding, hyperparameters, numbers, schedule, weights
from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.rule import Rule

LOAD_RULES: Final[tuple[Rule[DryRun], ...]] = (
    *completeness.RULES,
    *binding.RULES,
    *holding.RULES,
    *weights.RULES,
    *hyperparameters.RULES,
    *schedule.RULES,
    *frozen.RULES,
    *numbers.RULES,
)

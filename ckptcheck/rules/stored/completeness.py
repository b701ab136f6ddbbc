"""CK2: what one checkpoint lacks for a resume."""

from typing import Final

from ckptcheck.rules.rule import Rule
from ckptcheck.rules.stored import averages, optimizer_state, orphans, surroundings
from ckptcheck.rules.stored.stored import Stored

RULES: Final[tuple[Rule[Stored], ...]] = (
    optimizer_state.optimizer_state_absent,
    optimizer_state.optimizer_state_missing_for_parameter,
    optimizer_state.optimizer_state_partial,
    surroundings.scheduler_state_absent,
    surroundings.rng_state_absent,
    surroundings.scaler_state_absent,
    surroundings.data_position_absent,
    averages.ema_state_inconsistent,
    orphans.orphaned_optimizer_state,
)
"""They judge a checkpoint that a training shall go on from, no other."""

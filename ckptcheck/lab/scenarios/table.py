"""The visible table of scenarios: a new one is a function and a line."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ckptcheck.lab.bench import Bench
from ckptcheck.lab.contract import Row
from ckptcheck.lab.scenarios import branches, continuing, frozen, mixed
from ckptcheck.lab.scenarios.gradients import learning_rate_zero, rests_for_long, with_history, without_history

Scenario = Callable[[Bench], Iterator[Row]]
"""Yields the rows of a case; one that an optimizer has no use for yields none."""

OF_EVERY_VARIANT: Final[Mapping[str, Scenario]] = {
    "history": with_history,
    "no-history": without_history,
    "lr-zero": learning_rate_zero,
}
"""Tried with all hyperparameters and in all implementations."""
OF_THE_DEFAULTS: Final[Mapping[str, Scenario]] = {
    "rests": rests_for_long,
    "branch-inactive": branches.branch_inactive,
    "branch-never-active": branches.branch_never_active,
    "shared": branches.shared,
    "frozen": frozen.frozen_parameter,
    "frozen-removed": frozen.removed,
    "frozen-lr-zero": frozen.learning_rate_zero,
    "frozen-batchnorm": frozen.batchnorm,
    "frozen-average": frozen.average,
    "autocast": mixed.autocast,
    "scaler": mixed.scaler,
    "scaler-skipped": mixed.scaler_skipped,
    "accumulation-over-a-resume": continuing.window_over_a_resume,
    "schedule-goes-on": continuing.schedule_goes_on,
    "drift": continuing.drift,
}
"""Tried with the defaults only, in all implementations."""

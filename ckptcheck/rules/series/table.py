"""The rules over the checkpoints of one run."""

from typing import Final

from ckptcheck.rules.rule import Rule
from ckptcheck.rules.series import content, counters, files, newest
from ckptcheck.rules.series.series import Series

SERIES_RULES: Final[tuple[Rule[Series], ...]] = (*files.RULES, *content.RULES, *counters.RULES, *newest.RULES)

"""Every rule."""

from typing import Any, Final

from ckptcheck.rules import files
from ckptcheck.rules.contracts.table import CONTRACT_RULES
from ckptcheck.rules.loads.table import LOAD_RULES
from ckptcheck.rules.pairs.table import PAIR_RULES
from ckptcheck.rules.rule import Rule
from ckptcheck.rules.runs.later import LATER_RULES
from ckptcheck.rules.runs.table import RUN_RULES
from ckptcheck.rules.series.table import SERIES_RULES
from ckptcheck.rules.stored.table import STORED_RULES

RULES: Final[tuple[Rule[Any], ...]] = (
    *files.RULES, *STORED_RULES, *LOAD_RULES, *PAIR_RULES, *SERIES_RULES, *RUN_RULES, *LATER_RULES,
    *CONTRACT_RULES,
)  # fmt: skip
"""All rules; a code comes once for each kind of subject that it is judged over."""

BY_CODE: Final = {one.code: one for one in sorted(RULES, key=lambda one: one.code) if one.born}
"""The rule that each code was born with: for its name, severity and card."""

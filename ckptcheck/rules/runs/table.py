"""The rules over a resumed run, and which code is the cause where several fire."""

from typing import Final

from ckptcheck.rules.rule import Rule
from ckptcheck.rules.runs import (
    binding,
    buffers_and_scaler,
    completeness,
    data,
    environment,
    fidelity,
    frozen,
    generators,
    not_finite,
    numbers,
    schedule,
    steps,
    trajectory,
)
from ckptcheck.rules.runs.case import Case

RUN_RULES: Final[tuple[Rule[Case], ...]] = (
    *completeness.RULES,
    *binding.RULES,
    *frozen.RULES,
    *numbers.RULES,
    *not_finite.RULES,
    *schedule.RULES,
    *generators.RULES,
    *data.RULES,
    *buffers_and_scaler.RULES,
    *fidelity.RULES,
    *trajectory.RULES,
    *environment.RULES,
    *steps.RULES,
)
"""Rules over a resumed run and the one it should reproduce."""

CAUSES: Final = (
    "CK609",
    "CK401", "CK402", "CK403",
    "CK301", "CK302", "CK303", "CK304", "CK305", "CK307", "CK309", "CK311",
    "CK405", "CK406", "CK504", "CK505", "CK202", "CK203", "CK201",
    "CK602", "CK306", "CK603", "CK615", "CK612", "CK604", "CK605", "CK608", "CK208", "CK613",
    "CK601", "CK614", "CK606", "CK607", "CK610",
)  # fmt: skip
"""Codes that can be the cause, the most specific first (DESIGN section 3); the others stand beside a cause."""

ROOTS: Final = frozenset({"CK609", "CK401", "CK402", "CK403"})
"""Causes that need no resume: they are judged within one run."""

"""All cases, family by family."""

from tests.check_cases import binding, completeness, distributed_writers, frozen, numbers, pairs, schedule, series, writers
from tests.check_cases.case import Faulty, Legal

FAMILIES = (completeness, binding, frozen, numbers, schedule, pairs, series, writers, distributed_writers)
"""Modules with `FAULTY` and `LEGAL`."""

FAULTY: tuple[Faulty, ...] = tuple(case for family in FAMILIES for case in family.FAULTY)
LEGAL: tuple[Legal, ...] = tuple(case for family in FAMILIES for case in family.LEGAL)

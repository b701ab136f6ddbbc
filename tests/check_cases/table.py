"""All cases, family by family."""

from tests.check_cases import (
    aliases,
    binding,
    completeness,
    distributed_writers,
    following,
    frozen,
    loads,
    numbers,
    pairs,
    schedule,
    series,
    single_file_writers,
    swept,
    writers,
)
from tests.check_cases.case import Faulty, Legal

FAMILIES = (
    completeness,
    binding,
    aliases,
    frozen,
    numbers,
    schedule,
    pairs,
    following,
    series,
    writers,
    single_file_writers,
    distributed_writers,
    loads,
    swept,
)
"""Modules with `FAULTY` and `LEGAL`."""

FAULTY: tuple[Faulty, ...] = tuple(case for family in FAMILIES for case in family.FAULTY)
LEGAL: tuple[Legal, ...] = tuple(case for family in FAMILIES for case in family.LEGAL)

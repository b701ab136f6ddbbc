"""The whole catalogue: every fault by its name."""

from typing import Final

from tests.catalogue.fault import Fault
from tests.catalogue.faults import moments, schedule

FAMILIES: Final = (moments, schedule)

FAULTS: Final[dict[str, Fault]] = {one.name: one for family in FAMILIES for one in family.FAULTS}

"""Cases of pairs."""

from tests.check_cases.case import Faulty, Legal

FAULTY: tuple[Faulty, ...] = ()
LEGAL: tuple[Legal, ...] = ()

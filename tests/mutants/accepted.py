"""Survivors that are kept as they are, each with the reason: equal programs that no rule tells, or not worth a test."""

from dataclasses import dataclass
from typing import Final

from tests.mutants.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Accepted:
    """A mutant by its file and the lines that it puts in, stripped. `is_equal` says that no input can tell it."""

    path: str
    lines: tuple[str, ...]
    reason: str
    is_equal: bool = True


ACCEPTED: Final[tuple[Accepted, ...]] = ()


def accepted(mutant: Mutant) -> Accepted | None:
    """The entry for a mutant, if there is one."""
    put_in = tuple(line[1:].strip() for line in mutant.diff.splitlines() if line.startswith("+"))
    return next((one for one in ACCEPTED if one.path == mutant.path and one.lines == put_in), None)

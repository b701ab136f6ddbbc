"""What is judged: the checkpoints of one run that lie beside each other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from ckptcheck.comparison.series import Described, Stale
from ckptcheck.comparison.series_parts import Same
from ckptcheck.state.raw import Defect


class Order(StrEnum):
    """What says which checkpoint of a run is the later one."""

    STEPS = "steps"
    """The steps that all of them record."""
    NAMES = "names"
    """The numbers in their names; a trainer that keeps the last three may use 0, 1 and 2 in turn."""


@dataclass(frozen=True, slots=True)
class Member:
    """One checkpoint of a run.

    Attributes:
        name, number: in the run's folder, and the number in it.
        written_s: when it was written.
        chosen: whether it is the one that the check is about.
        described: what it is told by; None where it could not be read.
        defects: what is wrong with its files.
        refused: why it could not be read though nothing is wrong with it; "" where it was.
    """

    name: str
    number: int
    written_s: float
    chosen: bool
    described: Described | None = None
    defects: tuple[Defect, ...] = ()
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """The checkpoints of one run.

    Attributes:
        folder: where they lie.
        members: in the order of the numbers in their names; the newest ones where there are many.
        left_out: how many older ones were not read.
        tracker: the file that names the chosen one; "" where its number chose it.
        stale: what the moments of two successive readable ones say, by the names of both; None where none were
            compared.
        not_compared: why the moments of others were not, in one sentence; "" where all were.
        passed_over: newer ones than the chosen one by their numbers, with what they lack, the newest first.
        same: which parts a later one of the newest holds byte for byte of an earlier one, by the names of both.
    """

    folder: Path
    members: tuple[Member, ...]
    left_out: int = 0
    tracker: str = ""
    stale: Mapping[tuple[str, str], Stale] | None = None
    not_compared: str = ""
    passed_over: Mapping[str, str] = field(default_factory=dict)
    same: Mapping[tuple[str, str], Same] = field(default_factory=dict)

    @property
    def order(self) -> Order:
        """What the order of `readable` is by."""
        known = [one.described for one in self.members if one.described is not None]
        sure = all(one.counts_all and one.step is not None for one in known)
        return Order.STEPS if known and sure else Order.NAMES

    @property
    def readable(self) -> list[tuple[Member, Described]]:
        """Those that could be read, the earliest first."""
        found = [(one, one.described) for one in self.members if one.described is not None]
        by_steps = self.order is Order.STEPS and not self.misnumbered
        return sorted(found, key=lambda one: one[1].step or 0) if by_steps else found

    @property
    def misnumbered(self) -> list[tuple[Member, int]]:
        """Those that record another step than their name says, where most record that of their name; with the step."""
        known = [(one, one.described.step) for one in self.members if one.described]
        steps = [(one, step) for one, step in known if step is not None]
        unlike = [(one, step) for one, step in steps if step != one.number]
        fitting = len(steps) - len(unlike)
        return unlike if fitting >= 2 and fitting > len(unlike) else []

    @property
    def with_old_optimizer(self) -> set[str]:
        """Those whose whole optimizer, counters and all, is that of an earlier one: it was not started anew."""
        return {right for (_, right), one in self.same.items() if one.moments}

    @property
    def runs(self) -> Iterator[list[tuple[Member, Described]]]:
        """The readable ones, parted where another model begins."""
        run: list[tuple[Member, Described]] = []
        for one in self.readable:
            if run and not is_same_model(run[-1][1], one[1]):
                yield run
                run = []
            run.append(one)
        if run:
            yield run


def is_same_model(left: Described, right: Described) -> bool:
    """Whether two checkpoints can be of one training: one writer, and most names of the smaller model are shared."""
    if left.convention != right.convention:
        return False
    smaller = min(len(left.parameters), len(right.parameters))
    return 2 * len(left.parameters.keys() & right.parameters.keys()) >= smaller


NO_MOMENTS: Final = "no moments of two successive checkpoints were compared"
WHY_NOT: Final[Mapping[str, str]] = {}
"""No rule over a run needs a field that may be None."""

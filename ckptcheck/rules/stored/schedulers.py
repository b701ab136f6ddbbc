"""The schedules of one checkpoint as objects: their class by its fields, those within them, and their rates."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.schedule_pairs import schedulers_in
from ckptcheck.optimizers.schedules import COMMON, SCHEDULES, ScheduleRow
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Entry, TrainingState

_INNER: Final = re.compile(r"_schedulers\[(\d+)\](?:\.(.*))?")
_FIELD: Final = re.compile(r"[^.\[{]+")


@dataclass(frozen=True, slots=True)
class Scheduler:
    """One schedule's state: its path in the section ("" for a single one) and its entries by their own path.

    `inner` are those within it (SequentialLR, ChainedScheduler), in order, empty ones among them.
    """

    label: str
    entries: Mapping[str, Entry]
    inner: tuple["Scheduler", ...] = ()

    @property
    def fields(self) -> frozenset[str]:
        """The names of its fields."""
        return frozenset(match[0] for path in self.entries if (match := _FIELD.match(path)))

    @property
    def numbers(self) -> dict[str, float]:
        """Every number of its state by path; tensors of one element are read."""
        found = {path: finite_number(one) for path, one in self.entries.items()}
        return {path: value for path, value in found.items() if value is not None}

    @property
    def position(self) -> int | None:
        """Its `last_epoch`."""
        value = finite_number(self.entries.get("last_epoch"))
        return int(value) if value is not None else None

    def rates(self, field: str = "_last_lr") -> list[float]:
        """The numbers of a list by its name, the rates that it set last."""
        return [value for path, value in self.numbers.items() if re.fullmatch(rf"{field}\[\d+\]", path)]

    @property
    def row(self) -> ScheduleRow | None:
        """Its class, where its fields are exactly that one's; a user's own class has others beside them."""
        own = self.fields - COMMON
        return next((one for one in SCHEDULES if one.keys - self.off(one) == own), None)

    def off(self, row: ScheduleRow) -> set[str]:
        """Keys of a class that are not there because their switch is off."""
        switches = {key: self.entries.get(switch) for key, switch in row.when.items()}
        return {key for key, switch in switches.items() if switch is not None and switch.value is False}

    @property
    def place(self) -> str:
        """What stands in front of its fields' paths, for a reader."""
        return f"{self.label}." if self.label else ""


def schedulers_of(state: TrainingState) -> list[Scheduler]:
    """Every schedule of a checkpoint."""
    found = schedulers_in(state.sections.get("schedule", {}))
    return [_scheduler(label, entries) for label, entries in found.items()]


def _scheduler(label: str, entries: Mapping[str, Entry], depth: int = 8) -> Scheduler:
    own: dict[str, Entry] = {}
    within: dict[int, dict[str, Entry]] = {}
    for path, entry in entries.items():
        match = _INNER.fullmatch(path)
        if match is None or depth == 0:
            own[path] = entry
        else:
            within.setdefault(int(match[1]), {})
            if match[2]:
                within[int(match[1])][match[2]] = entry
    places = sorted(within)
    front = f"{label}." if label else ""
    inner = tuple(_scheduler(f"{front}_schedulers[{place}]", within[place], depth - 1) for place in places)
    return Scheduler(label, own, inner)


def active(scheduler: Scheduler) -> Scheduler | None:
    """The schedule that sets the rate now: itself, or of a sequence the one whose turn it is; None for others."""
    if not scheduler.inner:
        return scheduler
    passed = milestones_passed(scheduler)
    if passed is None or passed >= len(scheduler.inner):
        return None
    return active(scheduler.inner[passed])


def milestones_passed(scheduler: Scheduler) -> int | None:
    """How many milestones of a SequentialLR lie behind it; None for another class."""
    position = scheduler.position
    if position is None or "_milestones" not in scheduler.fields:
        return None
    return sum(1 for one in scheduler.rates("_milestones") if one <= position)


def expected_rates(scheduler: Scheduler) -> Iterator[tuple[float, float]]:
    """The rate of each group by the formula, and the one that it set last; nothing where there is no formula."""
    row, position, numbers = scheduler.row, scheduler.position, scheduler.numbers
    if row is None or row.rate is None or position is None or position < 0:
        return
    base, last = scheduler.rates("base_lrs"), scheduler.rates()
    if len(base) != len(last):
        return
    for one, recorded in zip(base, last, strict=True):
        try:
            yield row.rate(numbers, one, position), recorded
        except (ArithmeticError, LookupError, ValueError, TypeError):
            return  # a field is not what it should be, which is told for itself

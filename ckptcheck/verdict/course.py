"""What each step of a run did, as far as its trace shows: what an experiment can cross, and where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from ckptcheck.state.training_state import Scalar
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import LOAD, NONZERO, STEP, Item, Sample
from ckptcheck.verdict.epochs import ends_of_epochs
from ckptcheck.verdict.turns import between_updates

TOGETHER: Final = frozenset({"updates", "scaler", "schedule", "ema", "data", "extra", "inputs"})
"""Kinds of items of which every one is read; of the others only what says who trains, and how fast."""
TRAINED: Final = (Item("structure", "frozen"), Item("structure", "groups"))
"""Who is trained: what requires a gradient, and who is in which group."""

Series = Mapping[int, Scalar]
"""What a number was in each step, by step, ascending."""


class WarmUp(NamedTuple):
    """A rate that rises: the last step in which it did, and the first in which it did not go on, None for none."""

    last_rise: int
    stop: int | None


@dataclass(frozen=True, slots=True)
class Course:
    """What the steps of a run did. Steps are counted from 1.

    Attributes:
        steps: those that were recorded, ascending.
        keeps: kinds of items that the run has at all, such as "scaler".
        idle: steps in which no optimizer made an update.
        overflows: steps in which the loss scale fell.
        windows: steps after which gradients are held that no update has used yet.
        rate_changes: steps whose update used another learning rate than the one before.
        warm_ups: the rates that rise before they do anything else.
        regroupings: steps that train other parameters than the one before.
        averages: steps in which an EMA moved.
        epochs: steps in which one epoch gives way to the next, each with what shows it.
        counts_data: whether any number of the data that was handed over moves.
        between: for each optimizer that rests in some steps, those after which it is between two of its updates, but
            for steps in which all that rest wait within an accumulation window or had an overflow.
    """

    steps: tuple[int, ...]
    keeps: frozenset[str]
    idle: frozenset[int]
    overflows: frozenset[int]
    windows: frozenset[int]
    rate_changes: frozenset[int]
    warm_ups: tuple[WarmUp, ...]
    regroupings: frozenset[int]
    averages: frozenset[int]
    epochs: Mapping[int, str]
    counts_data: bool = False
    between: Mapping[int, frozenset[int]] = field(default_factory=dict)


def course_of(trace: Trace) -> Course:
    """The course of a run, read one step at a time."""
    read = _Reading(trace)
    steps = tuple(trace.steps)
    for step in steps:
        read.step(step)
    idle = read.idle if "updates" in read.keeps else set()
    overflows = frozenset(_falls(read.scales))
    held = {step for step in idle - overflows if read.holds_gradients(step)}
    rates = [one for item, one in read.numbers.items() if item.kind == "hyper"]
    return Course(
        steps=steps,
        keeps=frozenset(read.keeps),
        idle=frozenset(idle),
        overflows=overflows,
        windows=frozenset(held),
        rate_changes=frozenset(step for one in rates for step in _changes(one)),
        warm_ups=tuple(found for one in rates if (found := warm_up(one)) is not None),
        regroupings=frozenset(step for item in TRAINED for step in read.moves.get(item, ())),
        averages=frozenset(step for item, found in read.moves.items() if item.kind == "ema" for step in found),
        epochs=ends_of_epochs(steps, read.counters(), read.inputs, read.texts, frozenset(steps) - idle if held else ()),
        counts_data=any(item.kind == "data" and item in read.moves for item in read.numbers),
        between=between_updates(read.updated, overflows, held),
    )


class _Reading:
    """What is kept of a trace while it is read."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._wanted = [what for what, (item, _) in trace.table.items() if _is_wanted(item)]
        self._gradients = [what for what, (item, _) in trace.table.items() if item.kind == "grad"]
        self._last: dict[Item, bytes | None] = {}
        self.keeps: set[str] = set()
        self.idle: set[int] = set()
        self.updated: dict[int, dict[int, bool]] = {}
        self.numbers: dict[Item, dict[int, Scalar]] = {}
        self.moves: dict[Item, list[int]] = {}
        self.inputs: dict[Item, list[bytes | None]] = {}
        self.texts: set[tuple[str, str]] = set()
        self._start()

    def _start(self) -> None:
        """The scale before the first step: that step may overflow."""
        first = self._trace.steps[0] if self._trace.steps else 1
        for what, one in self._trace.picked(first - 1, LOAD, self._wanted).items():
            item = self._trace.table[what][0]
            if item.kind == "scaler" and _is_number(one.value):
                self.numbers.setdefault(item, {})[first - 1] = one.value  # type: ignore[assignment]

    def step(self, step: int) -> None:
        """Take in one step."""
        updates = 0
        for what, one in self._trace.picked(step, STEP, self._wanted).items():
            item, spec = self._trace.table[what]
            self.keeps.add(item.kind)
            if item.kind == "updates":
                updates += int(one.value or 0)
                self.updated.setdefault(item.optimizer, {})[step] = bool(one.value)
            elif item.kind == "inputs":
                if spec is not None and spec.numel > 1 and spec.dtype != "bool":
                    self.inputs.setdefault(item, []).append(one.digest)
            else:
                self._take(step, item, one)
        if not updates:
            self.idle.add(step)

    def _take(self, step: int, item: Item, one: Sample) -> None:
        if self._last.setdefault(item, one.digest) != one.digest:
            self.moves.setdefault(item, []).append(step)
            self._last[item] = one.digest
        if _is_number(one.value):
            self.numbers.setdefault(item, {})[step] = one.value  # type: ignore[assignment]
        elif item.kind in ("data", "extra") and isinstance(one.value, str):
            self.texts.add((item.name, one.value))

    @property
    def scales(self) -> list[Series]:
        """The loss scales."""
        return [one for item, one in self.numbers.items() if item.kind == "scaler" and "scale" in _last_key(item.name)]

    def counters(self) -> dict[Item, Series]:
        """The numbers of the data and of what else was handed over."""
        return {item: one for item, one in self.numbers.items() if item.kind in ("data", "extra")}

    def holds_gradients(self, step: int) -> bool:
        """Whether any gradient is left when a step ends that made no update."""
        return any(one.presence == NONZERO for one in self._trace.picked(step, STEP, self._gradients).values())


def _is_wanted(item: Item) -> bool:
    if item.part and item.kind != "updates":
        return False
    return item.kind in TOGETHER or item in TRAINED or is_rate(item)


def is_rate(item: Item) -> bool:
    """Whether it is the learning rate of a group, as the first update of a step uses it."""
    return item.kind == "hyper" and item.key == "lr" and not item.part


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _last_key(path: str) -> str:
    return path.rpartition(".")[2].lower()


def _falls(series: Iterable[Series]) -> set[int]:
    return {later for one in series for (_, before), (later, now) in pairwise(one.items()) if now < before}  # type: ignore[operator]


def _changes(rates: Series) -> list[int]:
    return [later for (_, before), (later, now) in pairwise(rates.items()) if now != before]


def warm_up(rates: Series) -> WarmUp | None:
    """How a rate rises before it does anything else; None where its first change is no rise.

    It may rise every few steps only, where a step is one micro-batch: it has stopped when it falls, or rests longer
    than it ever did between two rises.
    """
    steps = list(rates)
    rises: list[int] = []
    fall = None
    for (_, before), (step, now) in pairwise(rates.items()):
        if now < before:  # type: ignore[operator]
            fall = step
            break
        if now > before:  # type: ignore[operator]
            rises.append(step)
    if not rises:
        return None
    rest = max(later - before for before, later in pairwise(rises if len(rises) > 1 else [steps[0], *rises]))
    due = next((step for step in steps if step >= rises[-1] + rest), None)
    ends = [one for one in (fall, due) if one is not None]
    return WarmUp(rises[-1], min(ends, default=None))

"""Where a resumed script goes on: its trace placed on the one that it was resumed from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.comparison.alignment import Alignment, align
from ckptcheck.comparison.states import StateDiff, compare_states
from ckptcheck.state.training_state import TrainingState
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import END, LOAD, STEP
from ckptcheck.trace.moved import moved_items, with_the_moved
from ckptcheck.trace.states import state_after_step, state_at, without_silence

AROUND: Final = ("world_size", "torch", "python", "numpy", "cuda", "device_name")
"""What a trace's header says of the surroundings of its run."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A resumed trace whose steps are numbered as those of the run that it continues.

    `step` is k, the step after which it is taken to go on; `alignment` is where it lies by what it loaded.
    """

    step: int
    alignment: Alignment
    trace: Trace

    @property
    def by_content(self) -> bool:
        """Whether what it loaded says where it goes on."""
        return self.alignment.by == "content"

    @property
    def from_start(self) -> bool:
        """Whether it loaded nothing: it is where the first run began."""
        return self.alignment.by == "start" or (self.by_content and self.alignment.step == 0)


def place(source: Trace, resumed: Trace, expected: int, reference: Trace | None = None) -> Placed:
    """Place a resumed trace by its content; `expected` is k where content does not say.

    Counters alone are no place: a counter that was lost is what shall be found. A source that was killed may lack the
    step that it saved last: then the `reference`, which made the same steps, is asked.
    """
    alignment = align(source, resumed, expected)
    if alignment.by != "content" and reference is not None and reference is not source:
        other = align(reference, resumed, expected)
        alignment = other if other.by == "content" else alignment
    step = alignment.step if alignment.by == "content" and alignment.step > 0 else expected
    return Placed(step, alignment, resumed.shifted(step))


def moved(placed: Placed, step: int) -> Placed:
    """The same with its steps numbered from another one on."""
    return replace(placed, step=step, trace=placed.trace.shifted(step))


def load_of(left: Trace, right: Trace, step: int) -> StateDiff | None:
    """The state after step k of a run against what a resumed one holds before its next step; None where one lacks."""
    after = state_after_step(left, step)
    if after is None or (step, LOAD) not in right.moments:
        return None
    live = state_at(right, step, LOAD)
    named = [
        {name: trace.header[name] for name in AROUND if isinstance(trace.header.get(name), str | int)}
        for trace in (left, right)
    ]
    live = with_the_moved(live, after, moved_items(right))
    after = with_the_moved(after, live, moved_items(left))
    before = without_silence(replace(after, flags={**after.flags, **named[0]}), live)
    return compare_states(before, replace(live, flags={**live.flags, **named[1]}))


def unseeded(reference: Trace, repeats: Iterable[Trace]) -> frozenset[str]:
    """The generators that are otherwise at the begin of equal runs: nothing seeds them, often not numpy's."""
    begins = [_generators(one) for one in (reference, *repeats)]
    return frozenset(name for one in begins[1:] for name, seen in one.items() if begins[0].get(name, seen) != seen)


def _generators(trace: Trace) -> dict[str, bytes | None]:
    begin = next((step for step, moment in trace.moments if moment == LOAD), 0)
    return {item.name: one.digest for item, one in trace.samples(begin, LOAD).items() if item.kind == "rng"}


def built_of(reference: Trace) -> TrainingState | None:
    """The resumed run before its load: where the first run of the same script began, which is seeded alike."""
    begin = next((step for step, moment in reference.moments if moment == LOAD), None)
    return state_at(reference, begin, LOAD) if begin is not None else None


def last_step(trace: Trace) -> int:
    """The last step that is known to have been made; 0 where none is."""
    return max((step for step, moment in trace.moments if moment in (STEP, END)), default=0)

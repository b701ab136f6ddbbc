"""What tells a step of a trace: what a resumed run begins with, held against what the reference held after a step."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ckptcheck.comparison.renaming import renamed_items
from ckptcheck.comparison.trace_steps import Mask, Numbering, Numbers, Side
from ckptcheck.trace.items import END, LOAD, STEP, Item
from ckptcheck.trace.reading import Trace
from ckptcheck.trace.whole_steps import whole_steps

PROBES: Final = 16
"""Tensors of a kind that are looked up at every step at first."""
MOST_PROBES: Final = 512
"""Tensors that are looked up at every step where the first ones are found at none."""
CANDIDATES: Final = 12
"""Steps that are held against the load in full."""
MINOR: Final = 64
"""Values of a kind other than parameters and state that are looked up at every step."""
NEXT: Final = frozenset({"rng", "hyper"})
"""Kinds that are sampled when a step begins: what a step leaves of them is in the record of the next one."""
COUNTS: Final = ("last_epoch", "_step_count")
"""What schedules count."""


@dataclass(frozen=True, slots=True)
class Score:
    """How well the reference after a step agrees with the load.

    `matched` of `of` parameters and state tensors agree. `params` and `state` are the shares, 0 to 1, of those that
    agree among what is no longer as when the reference began. `others` is the share of buffers, schedules, generators
    and the like that agree; `told` are their kinds of which something agrees that is no longer as in the beginning.
    """

    step: int
    matched: int
    of: int
    params: float
    state: float
    others: float
    told: frozenset[str]


class _Held(NamedTuple):
    """What a moment holds of every item, by the number of the item."""

    present: Mask
    low: Numbers
    high: Numbers
    specs: Numbers

    def same(self, other: "_Held") -> Mask:
        """Of every item, whether both hold it with the same content."""
        equal: Mask = (self.low == other.low) & (self.high == other.high) & (self.specs == other.specs)
        return equal & self.present & other.present

    def replaced(self, other: "_Held", where: Mask) -> "_Held":
        """This one with the items of another one in some places."""
        return _Held(*(np.where(where, theirs, ours) for ours, theirs in zip(self, other, strict=True)))


class Landmarks:
    """A reference and the first moment of a resumed run.

    `start` is the step after which the reference itself began, `loaded` whether the resumed trace has a load at all.
    """

    def __init__(self, reference: Trace, resumed: Trace) -> None:
        self._reference = reference
        self._resumed = resumed
        self._numbering = Numbering()
        self._side = Side(reference, self._numbering)
        self._loads = [next(((s, m) for s, m in one.moments if m == LOAD), None) for one in (reference, resumed)]
        other = Side(resumed, self._numbering)
        renamed = renamed_items(reference, resumed)
        self._renamed: Numbers = np.array(
            [self._numbering.item(renamed(item)) for item in tuple(self._numbering.items)], np.int64
        )
        self._kinds = np.array([item.kind for item in self._numbering.items])
        counting = [item.kind == "state" and item.key == "step" for item in self._numbering.items]
        self._tensors = {kind: (self._kinds == kind) & ~np.array(counting, bool) for kind in ("param", "state")}
        self._major: Mask = np.isin(self._kinds, ("param", "state"))
        self._next: Mask = np.isin(self._kinds, tuple(NEXT))
        self.steps = whole_steps(reference)
        self.loaded = self._loads[1] is not None
        self.start = self._loads[0][0] if self._loads[0] is not None else (self.steps or [1])[0] - 1
        self._load = self._held(other, self._loads[1], renaming=True)
        self._begin = self._held(self._side, self._loads[0])
        self._resumed_items = {int(self._renamed[number]): number for number in other.numbers().tolist()}

    def _held(self, side: Side, moment: tuple[int, str] | None, *, renaming: bool = False) -> _Held:
        size = len(self._kinds)
        held = _Held(np.zeros(size, bool), *(np.zeros(size, kind) for kind in ("<u8", "<u8", np.int64)))
        if moment is not None:
            rows = side.rows(*moment)
            items = self._renamed[rows.items] if renaming else rows.items
            held.present[items] = True
            held.low[items], held.high[items] = rows.contents["low"], rows.contents["high"]
            held.specs[items] = rows.specs
        return held

    def _after(self, step: int) -> _Held:
        """What the reference held after a step."""
        if step == self.start:
            return self._begin
        held = self._held(self._side, (step, STEP))
        following = (step + 1, STEP) if (step + 1, STEP) in self._reference.moments else (step, END)
        return held.replaced(self._held(self._side, following), self._next)

    def score(self, step: int) -> Score:
        """Hold the load against the reference after a step."""
        after = self._after(step)
        same = self._load.same(after)
        changed = after.present & ~after.same(self._begin)
        both = self._load.present & after.present
        share = {kind: _share(same & changed & which, changed & which) for kind, which in self._tensors.items()}
        told = np.unique(self._kinds[same & changed & ~self._major])
        return Score(
            step=step,
            matched=int((same & self._major).sum()),
            of=int((both & self._major).sum()),
            params=share["param"],
            state=share["state"],
            others=_share(same & ~self._major, both & ~self._major),
            told=frozenset(told.tolist()),
        )

    def candidates(self, hint: int | None) -> list[int]:
        """The steps at which what the resumed run begins with is seen; with the start, and the hint where it is one."""
        votes: Counter[int] = Counter()
        for numbers in self._probes():
            for number in numbers:
                votes.update(self._seen(number))
            if votes:
                break
        minor: Counter[int] = Counter()
        for number in self._minor():
            minor.update(self._seen(number))
        known = set(self.steps)
        ranked = sorted((votes.keys() | minor.keys()) & known, key=lambda s: (-votes[s], -minor[s], s != hint, s))
        return list(dict.fromkeys([*ranked[:CANDIDATES], *([hint] if hint in known else []), self.start]))

    def _probes(self) -> Iterator[list[int]]:
        """Parameters and state tensors that change while the reference trains, a few at first, then more."""
        if not self.steps:
            return
        places = {self.steps[0], self.steps[len(self.steps) // 2], self.steps[-1]}
        seen = [self._held(self._side, (step, STEP)) for step in sorted(places)]
        last = seen.pop()
        moving = last.present & ~self._begin.same(last)
        for one in seen:
            moving |= one.present & ~one.same(last)
        chosen = [np.flatnonzero(moving & which & self._load.present).tolist() for which in self._tensors.values()]
        yield [number for numbers in chosen for number in numbers[:: max(1, len(numbers) // PROBES)][:PROBES]]
        yield [number for numbers in chosen for number in numbers[:: max(1, 2 * len(numbers) // MOST_PROBES)]]

    def _minor(self) -> list[int]:
        """What else the load holds, a bounded number of each kind."""
        others = np.flatnonzero(self._load.present & ~self._major)
        taken: Counter[str] = Counter()
        chosen = []
        for number in others.tolist():
            kind = self._numbering.items[number].kind
            taken[kind] += 1
            if taken[kind] <= MINOR and kind != "structure":
                chosen.append(number)
        return chosen

    def _seen(self, number: int) -> Iterator[int]:
        """The steps after which the reference had the load's content of an item, and not only its own first one."""
        item = self._numbering.items[number]
        wanted = (int(self._load.low[number]), int(self._load.high[number]))
        if self._begin.present[number] and wanted == (int(self._begin.low[number]), int(self._begin.high[number])):
            return
        digest = b"".join(part.to_bytes(8, "little") for part in wanted)
        later = item.kind in NEXT
        for step, seen in self._reference.digests(item):
            if seen == digest:
                yield step - later
        if later:
            for step, seen in self._reference.digests(item, END):
                if seen == digest:
                    yield step

    def step_by_counters(self) -> int | None:
        """The step that optimizers' counters tell, or else schedules'; None where none has counted since the start."""
        for kind in ("state", "schedule"):
            steps: Counter[int] = Counter()
            for item, value in self._counters(kind):
                step = self._counted(item, value)
                if step is not None and step != self.start:
                    steps[step] += 1
            if steps:
                return min(steps, key=lambda step: (-steps[step], step))
        return None

    def _counters(self, kind: str) -> Iterator[tuple[Item, float]]:
        """Counters of the load with their values, by the reference's names."""
        found = np.flatnonzero(self._load.present & (self._kinds == kind)).tolist()
        named = [number for number in found if _counts(self._numbering.items[number])]
        if self._loads[1] is None:
            return
        for number in named[:: max(1, len(named) // MINOR)]:
            item = self._numbering.items[self._resumed_items[number]]
            value = self._resumed.sample(*self._loads[1], item)
            if value is not None and isinstance(value.value, int | float) and not isinstance(value.value, bool):
                yield self._numbering.items[number], float(value.value)

    def _counted(self, item: Item, value: float) -> int | None:
        """The step after which a counter has a value, when it goes up at an even rate."""
        points = []
        for step in (self.steps[0], self.steps[-1]) if self.steps else ():
            sample = self._reference.sample(step, STEP, item)
            if sample is not None and isinstance(sample.value, int | float):
                points.append((step, float(sample.value)))
        if not points:
            return None
        (first, low), (last, high) = points[0], points[-1]
        rate = (high - low) / (last - first) if last > first else 1.0
        if not rate:
            return None
        told = first + (value - low) / rate
        return int(told) if told.is_integer() and self.start <= told <= self.steps[-1] else None


def _counts(item: Item) -> bool:
    return item.key == "step" if item.kind == "state" else item.name.endswith(COUNTS)


def _share(part: Mask, whole: Mask) -> float:
    count = int(whole.sum())
    return int(part.sum()) / count if count else 0.0

"""How far two runs are apart, tensor by tensor and step by step: exact numbers in columns, in bounded memory."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckptcheck.comparison.decoding import FLOATS, by_component
from ckptcheck.comparison.spread import AGREE, APART, LEFT_ONLY, RIGHT_ONLY, UNLIKE, Spread
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.trace.items import Item

MOST_CELLS: Final = 200_000
"""Tensors times steps of which numbers are kept; 32 bytes each in memory, about 80 in JSON."""
FEWEST_STEPS: Final = 2
"""Every tensor keeps as many, the first and the last, however many tensors there are."""
MEASURED, UNREPEATED, ANOTHER_SOURCE, NO_ROOM, TOO_MUCH = range(UNLIKE + 1, UNLIKE + 6)
"""What a cell becomes: its numbers are known; one of the new runs held something else there, or the run that was
resumed from did, which is not the one compared with; or it is not laid out."""
REASONS: Final = {
    APART: "the second pass did not come so far",
    LEFT_ONLY: "on the left side only",
    RIGHT_ONLY: "on the right side only",
    UNLIKE: "not two tensors of one shape",
    UNREPEATED: "it did not repeat itself when both runs were made once more",
    ANOTHER_SOURCE: "the run that it was resumed from does not hold there what the reference held",
    NO_ROOM: "the disk has no room to lay it out",
    TOO_MUCH: "only some of the steps are measured, so that few model sizes are on disk at once",
}
"""Why a cell has no numbers."""
_NO_ULP: Final = (1 << 64) - 1
"""Stands for none; two floats of 64 bits are less than that apart."""


@dataclass(frozen=True, slots=True)
class Column:
    """One tensor over its steps. A number is None where it has none; `differing` only where nothing was measured.

    `reasons` says of each such step why. `max_ulp` is None for integers and for two dtypes, `rel_l2` where the left
    side is zero; all are 0 where both sides agree.
    """

    item: Item
    steps: tuple[int, ...]
    max_abs: list[float | None]
    rel_l2: list[float | None]
    max_ulp: list[int | None]
    differing: list[int | None]
    reasons: dict[int, str]


class Curve:
    """The exact differences of everything in a `Spread`, as far as `MOST_CELLS` reaches.

    Where it does not reach, the tensors that differ first, and of these the ones whose norms are furthest apart, keep
    every step; all others keep `few_steps`.
    """

    def __init__(self, spread: Spread, gaps: Sequence[float], room_bytes: int, most_cells: int = MOST_CELLS) -> None:
        """`gaps` as of `norm_gaps`; at most `room_bytes` of tensors are laid out of one step."""
        self.spread = spread
        count, steps = len(spread.items), len(spread.steps)
        self.few_steps = spread.steps
        every = count
        if count * steps > most_cells:
            self.few_steps = few_of(spread.steps, max(FEWEST_STEPS, most_cells // 2 // count))
            spare = most_cells - count * len(self.few_steps)
            every = max(0, spare) // max(1, steps - len(self.few_steps))
        order = sorted(range(count), key=lambda one: (spread.first_of(one), -gaps[one], one))
        self._every = frozenset(order[:every])
        self._row = {item: row for row, item in enumerate(spread.items)}
        self._place = ({step: place for place, step in enumerate(self.few_steps)},
                       {step: place for place, step in enumerate(spread.steps)})  # fmt: skip
        sizes = [len(self._place[row in self._every]) for row in range(count)]
        self._offset = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
        self._make_room(order, room_bytes)

    def _make_room(self, order: list[int], room_bytes: int) -> None:
        cells = self._offset[-1]
        self._max_abs, self._rel_l2 = np.zeros(cells), np.zeros(cells)
        self._max_ulp, self._differing = np.zeros(cells, np.uint64), np.zeros(cells, np.int64)
        self._state: NDArray[np.int8] = np.zeros(cells, np.int8)
        whole = {step: place for place, step in enumerate(self.spread.steps)}
        few = [whole[step] for step in self.few_steps]
        laid_bytes = 0
        for row in order:
            found = self.spread.cells[row] if row in self._every else self.spread.cells[row][few]
            laid_bytes += self.spread.specs[row].nbytes
            if laid_bytes > room_bytes:
                laid_bytes -= self.spread.specs[row].nbytes
                found = np.where(found == APART, NO_ROOM, found)
            self._state[self._offset[row] : self._offset[row + 1]] = found

    @property
    def every(self) -> int:
        """How many tensors keep every step."""
        return len(self._every)

    def wanted(self) -> list[tuple[tuple[int, ...], list[tuple[Item, int]]]]:
        """What to lay out: steps, and the items of each of them from a step on."""
        groups = []
        for steps, rows in ((self.spread.steps, self._every), (self.few_steps, self._rest())):
            items = [(self.spread.items[row], self.spread.first_of(row)) for row in sorted(rows)
                     if (self._cells(row) == APART).any()]  # fmt: skip
            if items:
                groups.append((steps, items))
        return groups

    def _rest(self) -> frozenset[int]:
        return frozenset(range(len(self.spread.items))) - self._every

    def _cells(self, row: int) -> NDArray[np.int8]:
        return self._state[self._offset[row] : self._offset[row + 1]]

    def _at(self, step: int, item: Item) -> int | None:
        row = self._row.get(item)
        place = self._place[row in self._every].get(step) if row is not None else None
        return None if row is None or place is None else self._offset[row] + place

    def wants(self, step: int, item: Item) -> bool:
        """Whether the elements differ there and the numbers are to be kept."""
        at = self._at(step, item)
        return at is not None and self._state[at] == APART

    def put(self, step: int, item: Item, difference: TensorDifference) -> None:
        """Keep the numbers of a cell that is wanted; any other is left as it is."""
        at = self._at(step, item)
        if at is None or self._state[at] != APART:
            return
        self._state[at] = MEASURED
        self._max_abs[at] = np.nan if difference.max_abs is None else difference.max_abs
        self._rel_l2[at] = np.nan if difference.rel_l2 is None else difference.rel_l2
        self._max_ulp[at] = _NO_ULP if difference.max_ulp is None else difference.max_ulp
        self._differing[at] = difference.differing

    def drop(self, step: int, item: Item, why: int = UNREPEATED) -> None:
        """Forget what was measured of something that was not as it had been; `why` is one of the reasons."""
        at = self._at(step, item)
        if at is not None and self._state[at] in (APART, MEASURED):
            self._state[at] = why

    def drop_step(self, step: int, why: int = APART) -> None:
        """Forget what was measured of a step: unless told `why`, one of the new runs did not come to it."""
        for item in self._kept_at(step):
            self.drop(step, item, why)

    def wanted_at(self, step: int) -> list[Item]:
        """What is wanted of one step."""
        return [item for item in self._kept_at(step) if self.wants(step, item)]

    def _kept_at(self, step: int) -> Sequence[Item]:
        """The items that keep a step."""
        return self.spread.items if step in self._place[False] else [self.spread.items[row] for row in self._every]

    def columns(self) -> Iterator[Column]:
        """Every tensor that differs at any step, in the order of the spread."""
        for row, item in enumerate(self.spread.items):
            yield self._column(row, item)

    def _column(self, row: int, item: Item) -> Column:
        steps = self.spread.steps if row in self._every else self.few_steps
        part = slice(self._offset[row], self._offset[row + 1])
        states = self._state[part].tolist()
        known = [state in (AGREE, MEASURED) for state in states]
        has_ulp = by_component(self.spread.specs[row]).dtype in FLOATS
        ulps = [None if one == _NO_ULP or not (has_ulp and there) else one
                for one, there in zip(self._max_ulp[part].tolist(), known, strict=True)]  # fmt: skip
        return Column(
            item,
            steps,
            _numbers(self._max_abs[part].tolist(), known),
            _numbers(self._rel_l2[part].tolist(), known),
            ulps,
            [one if there else None for one, there in zip(self._differing[part].tolist(), known, strict=True)],
            {step: REASONS[state] for step, state in zip(steps, states, strict=True) if state in REASONS},
        )


def _numbers(values: list[float], known: list[bool]) -> list[float | None]:
    return [one if there and not math.isnan(one) else None for one, there in zip(values, known, strict=True)]


def few_of(steps: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the steps, ascending: the last, first, middle, second and tenth, then others evenly spread."""
    size = len(steps)
    places = dict.fromkeys(one for one in (size - 1, 0, (size - 1) // 2, 1, 9) if 0 <= one < size)
    places |= dict.fromkeys(round(one * (size - 1) / max(1, count - 1)) for one in range(count))
    return tuple(sorted(steps[place] for place in list(places)[:count]))

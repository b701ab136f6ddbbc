"""Which tensors two traces disagree in, and at which steps: by digests, as columns, without an object a cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckptcheck.comparison.trace_pairs import Parted, TracePair
from ckptcheck.comparison.trace_steps import ABSENT
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import STEP, Item, Sample
from ckptcheck.trace.reading import Trace

KINDS: Final = frozenset({"param", "state", "grad", "buffer"})
"""What the divergence is told of."""
AGREE, APART, LEFT_ONLY, RIGHT_ONLY, UNLIKE = range(5)
"""What is known of a tensor at a step: nothing differs, the elements do, one side lacks it, or no element has a partner
(another shape, or a plain value on a side). AGREE holds too where neither side has it."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The tensors that two traces disagree in at any step.

    `items` are in order of the first such step, then in causal order; `specs` has the spec of each, as it first
    differs. `cells` has shape (items, steps) and holds one of the five constants above.
    """

    steps: tuple[int, ...]
    items: tuple[Item, ...]
    specs: tuple[TensorSpec, ...]
    cells: NDArray[np.int8]

    def first_of(self, row: int) -> int:
        """The first step at which an item differs, by its place in `items`."""
        return self.steps[int((self.cells[row] != AGREE).argmax())]

    def count_of(self, row: int) -> int:
        """The number of steps at which an item differs."""
        return int(np.count_nonzero(self.cells[row]))


def spread_of(left: Trace, right: Trace, steps: Sequence[int]) -> Spread:
    """Hold two traces against each other at steps that both have. TraceError where one cannot be read."""
    if not steps:
        return Spread((), (), (), np.zeros((0, 0), np.int8))
    pair = TracePair(left, right)
    size = len(pair.items)  # what is added while reading are renamed hyperparameters
    curved = np.array([item.kind in KINDS for item in pair.items], bool)
    cells = np.zeros((len(steps), size), np.int8)
    specs = np.full(size, ABSENT, np.int64)
    for row, step in enumerate(steps):
        found = pair.parted(step)
        kept = found.numbers < size
        kept[kept] = curved[found.numbers[kept]]
        _note(cells[row], specs, Parted(*(one[kept] for one in found)), pair)
    numbers = np.flatnonzero((specs != ABSENT) & cells.any(axis=0))
    first = (cells[:, numbers] != AGREE).argmax(axis=0)
    rank = np.empty(size, np.int64)
    rank[sorted(range(size), key=lambda one: _order(pair.items[one]))] = np.arange(size)
    numbers = numbers[np.lexsort((rank[numbers], first))]
    kept_specs = [pair.specs[number] for number in specs[numbers].tolist()]
    return Spread(
        tuple(steps),
        tuple(pair.items[number] for number in numbers.tolist()),
        tuple(spec for spec in kept_specs if spec is not None),
        np.ascontiguousarray(cells[:, numbers].T),
    )


def _order(item: Item) -> tuple[int, Item]:
    return ("param", "state", "grad", "buffer").index(item.kind) if item.kind in KINDS else len(KINDS), item


def _note(row: NDArray[np.int8], specs: NDArray[np.int64], found: Parted, pair: TracePair) -> None:
    """Write down one step; plain values that face each other are no tensors and are left out."""
    if not len(found.numbers):
        return
    grads = np.array([item.kind == "grad" for item in pair.items], bool)[found.numbers]
    kinds, places = np.unique(np.stack([found.lefts, found.rights, grads]), axis=1, return_inverse=True)
    codes, told = np.array([_cell(pair, *kind) for kind in kinds.T.tolist()], np.int64).T
    row[found.numbers] = codes[places]
    new = (specs[found.numbers] == ABSENT) & (codes[places] != AGREE)
    specs[found.numbers[new]] = told[places[new]]


def _cell(pair: TracePair, left: int, right: int, is_grad: int) -> tuple[int, int]:
    """What a cell is, from the numbers of both sides' specs; and the number of the spec that stands for it."""
    sides = [None if spec == ABSENT else pair.specs[spec] for spec in (left, right)]
    if sides == [None, None]:
        return AGREE, ABSENT
    told = left if sides[0] is not None else right
    # A gradient that is none has a record without a spec; of anything else that is a plain value.
    missing = [spec == ABSENT or (is_grad and side is None) for spec, side in zip((left, right), sides, strict=True)]
    if any(missing):
        return (LEFT_ONLY if missing[1] else RIGHT_ONLY), told
    return (APART if alike(*sides) else UNLIKE), told


def alike(left: TensorSpec | None, right: TensorSpec | None) -> bool:
    """Whether the elements of two tensors can be held against each other."""
    return left is not None and right is not None and left.shape == right.shape and left.numel > 0 and left.nbytes > 0


def norm_gaps(spread: Spread, left: Trace, right: Trace) -> list[float]:
    """Of each item, how far the norms of both sides are apart after the last step, relative to left's; 0 where unknown.

    It is at most the relative L2 of the difference, and needs no tensor.
    """
    if not spread.steps:
        return []
    sides = [trace.samples(spread.steps[-1], STEP) for trace in (left, right)]
    return [_gap(*(side.get(item) for side in sides)) for item in spread.items]


def _gap(left: Sample | None, right: Sample | None) -> float:
    if left is None or right is None or left.norm is None or right.norm is None or not left.norm:
        return 0.0
    gap = abs(right.norm - left.norm) / left.norm
    return gap if np.isfinite(gap) else float("inf")

"""The steps of two traces held against each other as columns: only what differs becomes an object.

Every item that either trace knows has one number, so that the order in which a trace lists its items does not matter.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ckptcheck.errors import TraceError
from ckptcheck.finding import Compared
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import Item
from ckptcheck.trace.reading import NO_DIGEST, Trace

ABSENT: Final = -1
_CONTENT: Final = np.dtype([("low", "<u8"), ("high", "<u8"), ("presence", "u1")])

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Numbering:
    """One number for each item and each spec of two traces; more items may be added at any time."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.specs: list[TensorSpec | None] = []
        self._of_item: dict[Item, int] = {}
        self._of_spec: dict[TensorSpec | None, int] = {}
        self._ranks: Numbers = np.zeros(0, np.int64)

    def item(self, item: Item) -> int:
        """The number of an item."""
        number = self._of_item.setdefault(item, len(self.items))
        if number == len(self.items):
            self.items.append(item)
        return number

    def spec(self, spec: TensorSpec | None) -> int:
        """The number of a spec; None, the spec of a plain value, has one too."""
        number = self._of_spec.setdefault(spec, len(self.specs))
        if number == len(self.specs):
            self.specs.append(spec)
        return number

    def in_order(self, numbers: Numbers) -> Numbers:
        """Numbers of items in causal order: by stage, by call, who is in a group before its values, by name."""
        if len(self._ranks) != len(self.items):
            self._ranks = np.zeros(len(self.items), np.int64)
            self._ranks[sorted(range(len(self.items)), key=lambda one: _cause_order(self.items[one]))] = np.arange(
                len(self.items)
            )
        return numbers[np.argsort(self._ranks[numbers], kind="stable")]


def _cause_order(item: Item) -> tuple[int, int, bool, Item]:
    return STAGE_ORDER[item.stage], item.part, item.kind != "structure", item


class Rows(NamedTuple):
    """One step of one trace. All arrays have one entry a row.

    `whats` number the rows' items in the trace itself, `items` and `specs` in the `Numbering`; `listing` is the text
    behind `whats`, equal for equal `whats`.
    """

    listing: str
    whats: Numbers
    items: Numbers
    specs: Numbers
    contents: NDArray[np.void]

    def digest(self, row: int) -> bytes | None:
        """The digest of a row."""
        found = self.contents[row].tobytes()[:-1]
        return None if found == NO_DIGEST else found


class Side:
    """One of two traces, read step by step."""

    def __init__(self, trace: Trace, numbering: Numbering) -> None:
        self.trace = trace
        table = trace.table
        order = sorted(table)
        self._known: Numbers = np.array(order, np.int64)
        self._items: Numbers = np.array([numbering.item(table[one][0]) for one in order], np.int64)
        self._specs: Numbers = np.array([numbering.spec(table[one][1]) for one in order], np.int64)
        self._last: Rows | None = None
        self._texts: dict[bytes | None, str | None] = {}

    def numbers(self) -> Numbers:
        """The numbers of all items that the trace has records of."""
        return self._items

    def rows(self, step: int, moment: str) -> Rows:
        """The rows of one moment."""
        listing, contents = self.trace.columns(step, moment)
        read = np.frombuffer(contents, _CONTENT)
        if self._last is None or self._last.listing != listing:  # most steps list what the one before has listed
            self._last = self._numbered(listing, read)
        return self._last._replace(contents=read)

    def _numbered(self, listing: str, contents: NDArray[np.void]) -> Rows:
        whats: Numbers = np.fromstring(listing, np.int64, sep=",")
        places = np.searchsorted(self._known, whats)
        if len(whats) and (
            not len(self._known) or (self._known[np.minimum(places, len(self._known) - 1)] != whats).any()
        ):
            raise TraceError(f"{self.trace.path} cannot be read as a trace (a record is of nothing known)")
        return Rows(listing, whats, self._items[places], self._specs[places], contents)

    def text(self, digest: bytes | None) -> str | None:
        """The text behind a structure's digest; kept, as most steps have the same."""
        if digest not in self._texts:
            self._texts[digest] = self.trace.text(digest)
        return self._texts[digest]


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """Which rows of two sides are of the same item.

    `lefts` and `rights` are rows of items that both sides have, in the same order; `same_spec` says of each whether
    its spec agrees. `left_row` and `right_row` map the number of an item to its row, or to ABSENT. `alone` are the
    numbers of items that one side lacks. `in_place` says that both sides list the same, row by row.
    """

    lefts: Numbers
    rights: Numbers
    same_spec: Mask
    left_row: Numbers
    right_row: Numbers
    alone: Numbers
    in_place: bool

    def unlike(self, left: Rows, right: Rows) -> Numbers:
        """The numbers of the items that differ, in no order."""
        if self.in_place and left.contents.tobytes() == right.contents.tobytes():
            return self.alone
        pair = left.contents[self.lefts], right.contents[self.rights]
        apart = ~self.same_spec
        for part in ("low", "high", "presence"):
            apart |= pair[0][part] != pair[1][part]
        return np.concatenate([left.items[self.lefts[apart]], self.alone])


def pair_rows(left: Rows, right: Rows, size: int, renamed: Numbers | None, dropped: int | None) -> Pairing:
    """Pair the rows of two sides by the numbers of their items, of which there are `size`.

    `renamed` gives what the right side's items are called on the left, `dropped` an item that is not compared.
    """
    items = right.items if renamed is None else renamed[right.items]
    rows = []
    for side in (left.items, items):
        row: Numbers = np.full(size, ABSENT, np.int64)
        row[side] = np.arange(len(side))
        if dropped is not None:
            row[dropped] = ABSENT
        rows.append(row)
    both = np.flatnonzero((rows[0] != ABSENT) & (rows[1] != ABSENT))
    lefts, rights = rows[0][both], rows[1][both]
    same_spec = left.specs[lefts] == right.specs[rights]
    whole = len(both) == len(left.items) == len(items)
    return Pairing(
        lefts=lefts,
        rights=rights,
        same_spec=same_spec,
        left_row=rows[0],
        right_row=rows[1],
        alone=np.flatnonzero((rows[0] != ABSENT) ^ (rows[1] != ABSENT)),
        in_place=whole and bool(same_spec.all() and (lefts == rights).all()),
    )


class Tally:
    """Counts what both sides have: distinct parameters and state tensors, and bytes of the left side."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._seen: set[tuple[int, int]] = set()
        self._last: tuple[Pairing, int] | None = None
        self._nbytes = 0

    def add(self, pairing: Pairing, left: Rows) -> None:
        """Count one step."""
        if self._last is None or self._last[0] is not pairing:
            self._last = pairing, self._count(pairing, left)
        self._nbytes += self._last[1]

    def _count(self, pairing: Pairing, left: Rows) -> int:
        items, specs = left.items[pairing.lefts], left.specs[pairing.lefts]
        numbers, counts = np.unique(specs, return_counts=True)
        self._seen.update(zip(items.tolist(), specs.tolist(), strict=True))
        known = self._numbering.specs
        sizes = [one.nbytes if (one := known[number]) is not None else 0 for number in numbers.tolist()]
        return sum(size * count for size, count in zip(sizes, counts.tolist(), strict=True))

    def compared(self, steps: int) -> Compared:
        """What has been compared over so many steps."""
        parameters: set[str] = set()
        state: set[tuple[int, str, str]] = set()
        for number, spec in self._seen:
            item = self._numbering.items[number]
            if item.kind == "param":
                parameters.add(item.name)
            elif item.kind == "state" and self._numbering.specs[spec] is not None:
                state.add((item.optimizer, item.name, item.key))
        return Compared(steps, len(parameters), len(state), self._nbytes)

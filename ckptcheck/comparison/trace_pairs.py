"""What differs at one step of two traces: by name, groups matched by their members, without what has no meaning."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from ckptcheck.comparison.groups import match_groups, parse_groups
from ckptcheck.comparison.trace_steps import ABSENT, Mask, Numbering, Numbers, Pairing, Rows, Side, Tally, pair_rows
from ckptcheck.comparison.unsaid import Unsaid
from ckptcheck.finding import Compared
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import STAGE_OF_KIND, STEP, Item, Sample
from ckptcheck.trace.reading import Trace

MANY: Final = frozenset({"param", "grad", "state", "buffer", "ema"})
"""Kinds of which a model has very many."""
UNMATCHED: Final = 1000
"""Added to the number of a right group that has no partner on the left."""
FLAGS: Final = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Hyperparameters that choose an implementation: what they lead to is compared, not they themselves."""
STRUCTURE: Final = Item("structure", "groups")
_KINDS: Final = {kind: number for number, kind in enumerate(STAGE_OF_KIND)}
_RNG: Final = _KINDS["rng"]


class Difference(NamedTuple):
    """One item that differs at one step; a side is None where it has no such item.

    `item` is named as on the left, or as on the right where only that side has it. The value of a structure is its
    whole JSON text.
    """

    step: int
    item: Item
    left: Sample | None
    right: Sample | None

    @property
    def stage(self) -> str:
        """The stage that the item belongs to."""
        return self.item.stage

    @property
    def order(self) -> tuple[int, int]:
        """Sorts by time: step, then causal order of stages."""
        return self.step, STAGE_ORDER[self.stage]


class Parted(NamedTuple):
    """The items that differ at one step, as columns in causal order.

    `numbers` are places in `TracePair.items`, `lefts` and `rights` in `TracePair.specs`: -1 where a side has no such
    item.
    """

    numbers: Numbers
    lefts: Numbers
    rights: Numbers


class _Grouping(NamedTuple):
    """How the param groups of a step are held against each other.

    `renamed` gives what the items of the right side are called on the left, None where nothing is renamed; `same`
    says whether both sides have the same groups. `members` is everyone in a group of either side.
    """

    renamed: Numbers | None
    same: bool
    members: frozenset[str | None]


class TracePair:
    """Two traces, compared step by step. What most steps have in common is worked out once."""

    def __init__(self, left: Trace, right: Trace) -> None:
        self._numbering = Numbering()
        self._structure = self._numbering.item(STRUCTURE)
        self._sides = (Side(left, self._numbering), Side(right, self._numbering))
        self._tally = Tally(self._numbering)
        self._groupings: dict[tuple[bytes | None, ...], _Grouping] = {}
        self._paired: tuple[tuple[object, ...], Pairing] | None = None
        self._silent: tuple[_Grouping, Mask] | None = None
        self._kind: Numbers = np.zeros(0, np.int64)
        self._unsaid = Unsaid(left), Unsaid(right)
        self._silence: tuple[tuple[Pairing, tuple[bool, ...]], Mask] | None = None

    def compared(self, steps: int) -> Compared:
        """What `differences` has held against each other, over so many steps."""
        return self._tally.compared(steps)

    def differences(self, step: int, kept_a_kind: int | None = None) -> tuple[list[Difference], int]:
        """What differs at a step, in causal order, and how many more differ than are given.

        Of each kind in MANY the first `kept_a_kind` are given, all where it is None.
        """
        apart, rows, pairing = self._apart(step)
        if not len(apart):
            return [], 0
        kept = self._bounded(apart, kept_a_kind)
        return self._objects(step, kept, rows, pairing), len(apart) - len(kept)

    def parted(self, step: int) -> Parted:
        """What `differences` gives of a step, all of it, without an object for each."""
        apart, rows, pairing = self._apart(step)
        specs = []
        for read, places in zip(rows, (pairing.left_row, pairing.right_row), strict=True):
            found = places[apart]
            there = found != ABSENT
            spec: Numbers = np.full(len(found), ABSENT, np.int64)
            spec[there] = read.specs[found[there]]
            specs.append(spec)
        return Parted(apart, specs[0], specs[1])

    @property
    def items(self) -> Sequence[Item]:
        """Every item that either trace knows, as named on the left; more may come with the steps."""
        return self._numbering.items

    @property
    def specs(self) -> Sequence[TensorSpec | None]:
        """Every spec that either trace knows; None is that of plain values and of absent gradients."""
        return self._numbering.specs

    def _apart(self, step: int) -> tuple[Numbers, tuple[Rows, Rows], Pairing]:
        """The numbers of the items that differ at a step, in causal order, and what they were read from."""
        rows = self._sides[0].rows(step, STEP), self._sides[1].rows(step, STEP)
        grouping = self._grouping(rows)
        pairing = self._pairing(rows, grouping)
        self._tally.add(pairing, rows[0])
        apart = pairing.unlike(*rows)
        if len(apart):
            apart = self._numbering.in_order(apart[self._with_meaning(apart, pairing, grouping, step)])
        return apart, rows, pairing

    def _grouping(self, rows: tuple[Rows, Rows]) -> _Grouping:
        digests = []
        for side in rows:
            places = np.flatnonzero(side.items == self._structure)
            digests.append(side.digest(int(places[-1])) if len(places) else None)
        key = tuple(digests)
        if key not in self._groupings:
            texts = [side.text(digest) if digest is not None else None
                     for side, digest in zip(self._sides, digests, strict=True)]  # fmt: skip
            members = frozenset(
                name for text in texts for optimizer in parse_groups(text) for group in optimizer for name in group
            )
            renamed, same = self._regrouped(texts) if texts[0] != texts[1] else (None, False)
            self._groupings[key] = _Grouping(renamed, same, members)
        return self._groupings[key]

    def _regrouped(self, texts: list[str | None]) -> tuple[Numbers, bool]:
        """The right side's items with groups numbered as on the left, and whether all groups have a partner."""
        lefts, rights = parse_groups(texts[0]), parse_groups(texts[1])
        matches = [match_groups(one, other) for one, other in zip(lefts, rights, strict=False)]
        numbering = self._numbering
        named = list(range(len(numbering.items)))
        for number, item in enumerate(tuple(numbering.items)):
            if item.kind == "hyper" and item.optimizer < len(matches):
                group = matches[item.optimizer].left_of.get(item.group, item.group + UNMATCHED)
                named[number] = numbering.item(item._replace(group=group))
        same = len(lefts) == len(rights) and all(match.same_members for match in matches)
        return np.array(named, np.int64), same

    def _pairing(self, rows: tuple[Rows, Rows], grouping: _Grouping) -> Pairing:
        key = (rows[0].listing, rows[1].listing, id(grouping))
        if self._paired is None or self._paired[0] != key:
            # The same groups in another order are no difference: everything is compared by name.
            dropped = self._structure if grouping.same else None
            size = len(self._numbering.items)
            self._paired = key, pair_rows(rows[0], rows[1], size, grouping.renamed, dropped)
        return self._paired[1]

    def _with_meaning(self, apart: Numbers, pairing: Pairing, grouping: _Grouping, step: int) -> Mask:
        alone: Mask = np.zeros(len(self._numbering.items), bool)
        alone[pairing.alone] = True
        # numpy may be imported by one side only, and a GPU be there on one side only
        silent: Mask = self._meaningless(grouping)[apart] | ((self._kinds()[apart] == _RNG) & alone[apart])
        return ~(silent | self._left_out(pairing, step)[apart])

    def _left_out(self, pairing: Pairing, step: int) -> Mask:
        """Of every item, whether the side that lacks it does not say whether it is there."""
        key = pairing, tuple(one.is_last(step) for one in self._unsaid)
        if self._silence is None or self._silence[0] != key:
            found: Mask = np.zeros(len(self._numbering.items), bool)
            for unsaid, rows in zip(self._unsaid, (pairing.left_row, pairing.right_row), strict=True):
                if unsaid.everywhere or unsaid.is_last(step):
                    for number in pairing.alone[rows[pairing.alone] == ABSENT].tolist():
                        found[number] = unsaid.leaves_out(self._numbering.items[number], step)
            self._silence = key, found
        return self._silence[1]

    def _meaningless(self, grouping: _Grouping) -> Mask:
        """Of every item, whether a difference in it has no meaning of its own."""
        items = self._numbering.items
        if self._silent is None or self._silent[0] is not grouping or len(self._silent[1]) != len(items):
            members = grouping.members
            # No update reads the gradient of who is in no group: it piles up from the start of the process.
            silent = [
                (item.kind == "grad" and bool(members) and item.name not in members)
                or (item.kind == "hyper" and item.key in FLAGS)
                for item in items
            ]
            self._silent = grouping, np.array(silent, bool)
        return self._silent[1]

    def _kinds(self) -> Numbers:
        """Of every item, the number of its kind."""
        items = self._numbering.items
        if len(self._kind) != len(items):
            self._kind = np.array([_KINDS[item.kind] for item in items], np.int64)
        return self._kind

    def _bounded(self, numbers: Numbers, kept_a_kind: int | None) -> Numbers:
        # 20,000 tensors that differ over 1,000 steps would fill the memory, and say no more than the first few.
        if kept_a_kind is None:
            return numbers
        kinds = self._kinds()[numbers]
        kept: Mask = np.ones(len(numbers), bool)
        for kind in MANY:
            kept[np.flatnonzero(kinds == _KINDS[kind])[kept_a_kind:]] = False
        return numbers[kept]

    def _objects(self, step: int, numbers: Numbers, rows: tuple[Rows, Rows], pairing: Pairing) -> list[Difference]:
        sides = []
        for side, read, places in zip(self._sides, rows, (pairing.left_row, pairing.right_row), strict=True):
            found = places[numbers]
            whats = (
                np.where(found == ABSENT, ABSENT, read.whats[found]).tolist()
                if len(read.whats)
                else [ABSENT] * len(found)
            )
            samples = side.trace.picked(step, STEP, [what for what in whats if what != ABSENT])
            sides.append([samples.get(what) for what in whats])
        return [
            self._with_texts(Difference(step, self._numbering.items[number], left, right))
            for number, left, right in zip(numbers.tolist(), *sides, strict=True)
        ]

    def _with_texts(self, one: Difference) -> Difference:
        """A structure with its text, which stands apart in a trace, as its value."""
        if one.item.kind != "structure":
            return one
        pair = [
            sample._replace(value=side.text(sample.digest)) if sample is not None else None
            for sample, side in zip((one.left, one.right), self._sides, strict=True)
        ]
        return one._replace(left=pair[0], right=pair[1])

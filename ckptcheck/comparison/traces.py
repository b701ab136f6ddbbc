"""Two traces compared step by step and stage by stage, by name; memory does not grow with tensors x steps read."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ckptcheck.comparison.groups import match_groups, parse_groups
from ckptcheck.errors import TraceError
from ckptcheck.finding import Compared
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import END, STEP, Item, Sample

WHOLE_STEPS: Final = 2
"""Differing steps of which every difference is kept."""
KEPT_A_KIND: Final = 64
"""Differences of one kind of tensor that are kept of each later step."""
MANY: Final = frozenset({"param", "grad", "state", "buffer", "ema"})
"""Kinds of which a model has very many."""
UNMATCHED: Final = 1000
"""Added to the number of a right group that has no partner on the left."""
FLAGS: Final = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Hyperparameters that choose an implementation: what they lead to is compared, not they themselves."""


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


@dataclass(frozen=True, slots=True)
class TraceDiff:
    """What differs between two traces over the steps that both have.

    `differences` are in order of step, stage and name. `steps` are those compared. `drawn` are the generators that
    either side drew from within them, without those that it set anew in the first of them. `left_only` and
    `right_only` are steps between the first and last compared one that only one side has. `left_out` counts
    differences that were seen and not kept. In `differences`, the value of a structure is its JSON text.
    """

    steps: tuple[int, ...]
    compared: Compared
    differences: tuple[Difference, ...]
    drawn: frozenset[str] = frozenset()
    left_only: tuple[int, ...] = ()
    right_only: tuple[int, ...] = ()
    left_out: int = 0

    @property
    def first(self) -> Difference | None:
        """The first difference in time, or None."""
        return self.differences[0] if self.differences else None

    def at_first_stage(self) -> tuple[Difference, ...]:
        """All differences of the first step and stage that differ."""
        if not self.differences:
            return ()
        return tuple(one for one in self.differences if one.order == self.differences[0].order)

    def without(self, floor: Mapping[Item, int]) -> "TraceDiff":
        """Without items from the step on at which they differ between equal runs, and without undrawn generators."""
        kept = tuple(
            one
            for one in self.differences
            if floor.get(one.item, one.step + 1) > one.step
            and not (one.item.kind == "rng" and one.item.name not in self.drawn)
        )
        return replace(self, differences=kept)

    def floor(self) -> dict[Item, int]:
        """For a pair of equal runs: each item that differs, with the first step at which it does."""
        first: dict[Item, int] = {}
        for one in self.differences:
            first.setdefault(one.item, one.step)
        return first


@dataclass(slots=True)
class _Count:
    parameters: set[str] = field(default_factory=set)
    state: set[tuple[int, str, str]] = field(default_factory=set)
    nbytes: int = 0

    def add(self, item: Item, sample: Sample) -> None:
        if item.kind == "param":
            self.parameters.add(item.name)
        elif item.kind == "state" and sample.spec is not None:
            self.state.add((item.optimizer, item.name, item.key))
        if sample.spec is not None:
            self.nbytes += sample.spec.nbytes


def compare_traces(
    left: Trace, right: Trace, first: int | None = None, last: int | None = None, *, every: bool = False
) -> TraceDiff:
    """Compare all steps from `first` to `last` that both traces have; all of them where None.

    Of a step after the first two that differ, at most `KEPT_A_KIND` differing tensors of each kind are kept, unless
    `every` one is asked for; `left_out` counts the others.
    Raises TraceError when the digests were made by different algorithms.
    """
    if left.header["digest"] != right.header["digest"]:
        raise TraceError(
            f"{left.path} holds {left.header['digest']} digests, {right.path} {right.header['digest']}: "
            f"unlike digests cannot be compared; record both with the same --digest"
        )
    first = first if first is not None else max(left.steps[:1] + right.steps[:1], default=1)
    last = last if last is not None else min(left.steps[-1:] + right.steps[-1:], default=0)
    spans = [{step for step in trace.steps if first <= step <= last} for trace in (left, right)]
    count = _Count()
    steps = tuple(sorted(spans[0] & spans[1]))
    differences: list[Difference] = []
    differing_steps = left_out = 0
    for step in steps:
        found = _compare_step(left, right, step, count)
        kept = found if every or differing_steps < WHOLE_STEPS else _bounded(found)
        differences += kept
        differing_steps += bool(found)
        left_out += len(found) - len(kept)
    reseeded = _reseeded(left, right, steps, differences)
    differences = [one for one in differences if (one.step, one.item) not in reseeded]
    set_anew = {item.name for step, item in reseeded if step == steps[0]}
    return TraceDiff(
        steps=steps,
        compared=Compared(len(steps), len(count.parameters), len(count.state), count.nbytes),
        differences=tuple(differences),
        drawn=frozenset((_drawn(left, steps) | _drawn(right, steps)) - set_anew),
        left_only=tuple(sorted(spans[0] - spans[1])),
        right_only=tuple(sorted(spans[1] - spans[0])),
        left_out=left_out,
    )


def _reseeded(
    left: Trace, right: Trace, steps: tuple[int, ...], differences: list[Difference]
) -> set[tuple[int, Item]]:
    """Generators, with steps, that differ when the step begins and agree when it ends: it has set them anew.

    Two streams never meet again by drawing, so a run that seeds at the start of each step differs only until then.
    """
    apart = {(one.step, one.item) for one in differences if one.item.kind == "rng"}
    found = set()
    for step, item in apart:
        if step != steps[-1]:
            agree = (step + 1, item) not in apart
        else:
            ends = [trace.digest(*_after(trace, step), item) for trace in (left, right)]
            agree = ends[0] is not None and ends[0] == ends[1]
        if agree:
            found.add((step, item))
    return found


def _after(trace: Trace, step: int) -> tuple[int, str]:
    """The moment at which the generators are as a step has left them."""
    return (step + 1, STEP) if (step + 1, STEP) in trace.moments else (step, END)


def _bounded(found: list[Difference]) -> list[Difference]:
    # 20,000 tensors that differ over 1,000 steps would fill the memory, and say no more than the first few.
    seen: Counter[str] = Counter()
    kept = []
    for one in found:
        seen[one.item.kind] += 1
        if one.item.kind not in MANY or seen[one.item.kind] <= KEPT_A_KIND:
            kept.append(one)
    return kept


def _compare_step(left: Trace, right: Trace, step: int, count: _Count) -> list[Difference]:
    lefts, rights = left.samples(step, STEP), right.samples(step, STEP)
    structure = Item("structure", "groups")
    texts = [side.text(samples[structure].digest) if structure in samples else None
             for side, samples in ((left, lefts), (right, rights))]  # fmt: skip
    if texts[0] != texts[1]:
        rights, same = _regrouped(rights, texts)
        if same:  # the same groups in another order are no difference: everything is compared by name
            rights.pop(structure, None)
            lefts.pop(structure, None)
    members = _members(texts)
    found = [
        _with_texts(one, left, right)
        for one in _unlike(step, lefts, rights, count)
        if not _without_meaning(one, members)
    ]
    # Who is in which group comes before the values of the groups.
    return sorted(found, key=lambda one: (one.order, one.item.part, one.item.kind != "structure", one.item))


def _unlike(step: int, lefts: dict[Item, Sample], rights: dict[Item, Sample], count: _Count) -> Iterator[Difference]:
    for item, sample in lefts.items():
        other = rights.get(item)
        if other is None:
            yield Difference(step, item, sample, None)
            continue
        count.add(item, sample)
        if not sample.same_as(other):
            yield Difference(step, item, sample, other)
    for item, sample in rights.items():
        if item not in lefts:
            yield Difference(step, item, None, sample)


def _members(texts: list[str | None]) -> frozenset[str | None]:
    """Everyone who is in a param group on either side; empty where there is no optimizer."""
    return frozenset(
        name for text in texts for optimizer in parse_groups(text) for group in optimizer for name in group
    )


def _with_texts(one: Difference, left: Trace, right: Trace) -> Difference:
    """A structure with its text, which stands apart in a trace, as its value."""
    if one.item.kind != "structure":
        return one
    pair = [
        sample._replace(value=trace.text(sample.digest)) if sample is not None else None
        for sample, trace in ((one.left, left), (one.right, right))
    ]
    return one._replace(left=pair[0], right=pair[1])


def _without_meaning(one: Difference, members: frozenset[str | None]) -> bool:
    kind = one.item.kind
    if kind == "rng":  # numpy may be imported by one side only, and a GPU be there on one side only
        return one.left is None or one.right is None
    if kind == "grad":  # no update reads it: it piles up from the start of the process
        return bool(members) and one.item.name not in members
    return kind == "hyper" and one.item.key in FLAGS


def _regrouped(samples: dict[Item, Sample], texts: list[str | None]) -> tuple[dict[Item, Sample], bool]:
    """The right side's samples with its groups numbered as the left's, and whether all groups have a partner."""
    lefts, rights = parse_groups(texts[0]), parse_groups(texts[1])
    matches = [match_groups(one, other) for one, other in zip(lefts, rights, strict=False)]
    renamed = {}
    for item, sample in samples.items():
        named = item
        if item.kind == "hyper" and item.optimizer < len(matches):
            named = item._replace(group=matches[item.optimizer].left_of.get(item.group, item.group + UNMATCHED))
        renamed[named] = sample
    return renamed, len(lefts) == len(rights) and all(match.same_members for match in matches)


def _drawn(trace: Trace, steps: tuple[int, ...]) -> set[str]:
    """The generators whose state changed within the steps."""
    if not steps:
        return set()
    moments = [*((step, STEP) for step in steps), _after(trace, steps[-1])]
    names = {item.name for item, _ in trace.tensors() if item.kind == "rng"}
    drawn = set()
    for name in names:
        digests = {digest for moment in moments if (digest := trace.digest(*moment, Item("rng", name))) is not None}
        if len(digests) > 1:
            drawn.add(name)
    return drawn

"""What equal runs say: the noise floor, and what saving does to the run that saves."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.comparison.traces import Difference, TraceDiff, compare_traces
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import AFTER_SAVE, LOAD, SAVED, Item, Sample

NUMERIC: Final = frozenset({"buffers", "loss", "grad", "state", "param", "ema"})
"""Stages whose values kernels compute; `--policy state-exact` holds these against the floor, all others exactly."""
SETTINGS: Final = frozenset({"hyperparameters", "schedule"})
"""Stages that follow from the step number, whatever kernels compute; they are judged beyond the first noise too."""
EXACT: Final = frozenset({"rng", "inputs", "scaler", "data"})
"""More stages that no kernel computes; beyond numeric noise they are judged where equal runs agree on all of the."""
ENOUGH: Final = 6
"""Pairs of (repeat, whole step) beyond the first noise in which a tensor must be equal to be judged there."""
FLOOR_FACTOR: Final = 10.0
"""How many times the greatest gap between equal runs a resumed run may have under state-exact."""
NORM_RESOLUTION: Final = 1e-6
"""Relative gaps below this cannot be told by norms taken in float32."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How far equal runs agree.

    `floor` maps each item that differs between equal runs to the first step at which it does. `first` is the
    first such difference where one beside a generator differs, else None. `gaps` is the greatest relative gap of
    the norms of each kind of item. `perturbs` is the first difference that saving makes, None where it makes none;
    `repeated` says whether there was a run without saving at all. `pairs` are those of (repeat, step) that lie behind
    the step of `first`. `chance` says where a difference was seen that did not repeat itself, or may be noise: "" where
    none was; `open` is that difference where it is not `first`.
    """

    floor: Mapping[Item, int]
    first: Difference | None
    gaps: Mapping[str, float]
    perturbs: Difference | None
    repeated: bool
    pairs: int = 0
    chance: str = ""
    open: Difference | None = None

    def strip(
        self, diff: TraceDiff, numeric_floor: bool, beyond: Callable[[Difference], bool] | None = None
    ) -> TraceDiff:
        """Take out what cannot be judged: from the first noise on what is noisy itself, or follows from what is.

        With `numeric_floor` the exact stages are kept to the end, unless they are noisy themselves, and so are
        numeric differences beyond the floor; `beyond` tells these, norms do where it is None.
        """
        kept = diff.without(self.floor if self.first is None or numeric_floor else {})
        if self.first is None:
            return kept
        if numeric_floor:
            tell = beyond if beyond is not None else self._beyond
            numeric = [one for one in diff.differences if one.stage in NUMERIC and tell(one)]
            exact = [one for one in kept.differences if one.stage not in NUMERIC]
            return _replace(diff, sorted(numeric + exact, key=lambda one: (one.order, one.item)))
        stages = self._exact_stages
        early = [
            one
            for one in kept.differences
            if one.order < self.first.order or one.stage in stages or self._is_quiet(one.item)
        ]
        return _replace(diff, early)

    @property
    def _exact_stages(self) -> frozenset[str]:
        """Stages that no noise reaches: those that kernels do not compute, and on which equal runs agree to the end.

        Rates may follow the loss all the same, as a schedule that waits for a plateau has them; it then holds a loss,
        and is noisy. An agent's inputs follow its weights.
        """
        noisy = {item.stage for item in self.floor}
        settings = frozenset() if noisy & SETTINGS else SETTINGS
        return settings | (EXACT - noisy if self.only_numeric else frozenset())

    def _is_quiet(self, item: Item) -> bool:
        """Whether a tensor has been equal in so many steps behind the noise that nothing noisy can be behind it.

        What is computed from a noisy tensor may be equal once, by rounding; a single number is so often.
        """
        if not self.only_numeric or item.kind not in ("grad", "state", "param", "buffer") or self.pairs < ENOUGH:
            return False
        return not item.key.startswith("step") and not any(item.name == one.name for one in self.floor)

    def _beyond(self, one: Difference) -> bool:
        gap = _gap(one)
        return gap is None or gap > max(NORM_RESOLUTION, FLOOR_FACTOR * self.gaps.get(one.item.kind, 0.0))

    @property
    def first_step(self) -> int:
        """The first step in which equal runs differ, 0 before any; of the greatest number where none does."""
        return self.first.step if self.first is not None else sys.maxsize

    @property
    def only_numeric(self) -> bool:
        """Whether equal runs differ in nothing but what kernels compute."""
        return self.first is not None and self.first.step > 0 and self.first.stage in NUMERIC


def _replace(diff: TraceDiff, differences: Iterable[Difference]) -> TraceDiff:
    return replace(diff, differences=tuple(differences))


def _gap(one: Difference) -> float | None:
    pair = [_size(side) for side in (one.left, one.right)]
    if pair[0] is None or pair[1] is None:
        return None
    scale = max(abs(pair[0]), abs(pair[1]))
    return abs(pair[1] - pair[0]) / scale if scale else 0.0


def _size(sample: Sample | None) -> float | None:
    if sample is None:
        return None
    size = sample.norm if sample.norm is not None else sample.value
    return float(size) if isinstance(size, int | float) else None


def assess(reference: Trace, repeats: Sequence[Trace], saves_by_chance: bool = False) -> Noise:
    """Hold the reference, which saves, against equal runs that do not; two of these tell saving from noise.

    With `saves_by_chance` it is known that what the reference alone shows is chance, and not its saving.
    """
    if not repeats:
        return Noise({}, None, {}, None, repeated=False)
    to_reference = _without_undrawn(compare_traces(reference, repeats[0]))
    if to_reference.first is None and len(repeats) == 1:
        return Noise({}, None, {}, None, repeated=True)
    among = [_without_undrawn(compare_traces(repeats[0], other)) for other in repeats[1:]]
    if len(repeats) > 1 and all(one.first is None for one in among) and not saves_by_chance:
        return Noise({}, None, {}, to_reference.first, repeated=True)
    diffs = [to_reference, *among]
    differences = sorted((one for diff in diffs for one in diff.differences), key=lambda one: (one.order, one.item))
    # Generators that nothing draws from and clocks or paths in `extra` differ between equal runs, and move nothing.
    floor: dict[Item, int] = {}
    gaps: dict[str, float] = {}
    for one in differences:
        floor.setdefault(one.item, one.step)
        gaps[one.item.kind] = max(gaps.get(one.item.kind, 0.0), _gap(one) or 0.0)
    matter = any(one.item.kind not in ("rng", "extra") for one in differences)
    seen = (one for one in differences if one.item.kind != "extra")
    first = (_built_apart(reference, repeats[0]) or next(seen)) if matter else None
    pairs = len(repeats) * (to_reference.steps[-1] - first.step) if first is not None and to_reference.steps else 0
    return Noise(floor, first, gaps, None, repeated=True, pairs=pairs)


def _built_apart(left: Trace, right: Trace) -> Difference | None:
    """The first parameter or buffer that two equal runs differ in before their first step, which no seed fixed."""
    lefts, rights = left.samples(0, LOAD), right.samples(0, LOAD)
    apart = [
        Difference(0, item, sample, rights[item])
        for item, sample in lefts.items()
        if item.kind in ("param", "buffer") and item in rights and not sample.same_as(rights[item])
    ]
    return min(apart, key=lambda one: (one.item.kind != "param", one.item), default=None)


def _without_undrawn(diff: TraceDiff) -> TraceDiff:
    return diff.without({})


def touched_by_save(trace: Trace, step: int, drawn: frozenset[str]) -> tuple[Difference, ...]:
    """What is otherwise after a save than before it, without generators that nothing draws from."""
    before, after = trace.samples(step, SAVED), trace.samples(step, AFTER_SAVE)
    found = [
        Difference(step, item, before.get(item), after.get(item))
        for item in {**before, **after}
        if item not in before or item not in after or not before[item].same_as(after[item])
    ]
    found = [one for one in found if one.item.kind != "rng" or one.item.name in drawn]
    return tuple(sorted(found, key=lambda one: (STAGE_ORDER[one.stage], one.item)))

"""The second pass over commands: the whole run and the resumed one once more, for the exact difference between them.

Launchers take turns, so that the two cannot go in lockstep: what is to be measured is on disk at once, and bounded.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ckptcheck.comparison import curve as curves
from ckptcheck.comparison.curve import Curve
from ckptcheck.comparison.states import StateDiff
from ckptcheck.comparison.tensors import TensorDifference, compare_bytes, count_beyond
from ckptcheck.comparison.tolerance import Tolerance
from ckptcheck.comparison.trace_pairs import TracePair
from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.errors import OutputError
from ckptcheck.experiment.commands.plan import AGAIN, REFERENCE, RESUMED, CommandExperiment
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.experiment.commands.wanted import Wanted
from ckptcheck.experiment.laid import Laid, alike, measurable_at_load, measurable_in_steps
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import LOAD, STEP, Item

_Digests: TypeAlias = tuple[bytes | None, bytes | None]

MODEL_SIZES: Final = 4
"""How many times the bytes of a step, of parameters and everything else that is sampled, a run may lay out."""
ALWAYS_BYTES: Final = 256 << 20
"""As much may be laid out of a small model."""
NO_ROOM: Final = "the disk has no room to lay it out"
TOO_MUCH: Final = "only some of the steps are measured, so that few model sizes are on disk at once"
UNREPEATED: Final = "it did not repeat itself when both runs were made once more"
UNSEEN: Final = "it was not there to be measured when both runs were made once more"
GENERATOR: Final = "of a script's generators only digests are kept"
SEVERAL: Final = "several processes have this rank, and only one can lay tensors out"


@dataclass(frozen=True, slots=True)
class Apart:
    """What differs on one rank between the whole run and the one resumed after step `step`.

    `step_bytes` is the size of all that a step samples. `curve` takes what is measured of all that differs at a step;
    `first` are the traces that differ, their steps counted alike.
    """

    rank: int
    step: int
    load: StateDiff | None
    trajectory: TraceDiff | None
    step_bytes: int
    curve: Curve | None = None
    first: tuple[Trace, Trace] | None = None

    @property
    def at_load(self) -> frozenset[Item]:
        """What to measure of the load; generators are not laid out."""
        return frozenset(one for one in measurable_at_load(self.load) if one.kind not in ("rng", "hyper"))

    @property
    def in_steps(self) -> dict[int, frozenset[Item]]:
        """What to measure of the steps."""
        wanted = {step: set(items) for step, items in measurable_in_steps(self.trajectory).items()}
        for step in self.curve.spread.steps if self.curve is not None else ():
            wanted.setdefault(step, set()).update(self.curve.wanted_at(step) if self.curve is not None else ())
        return {
            step: kept
            for step, items in wanted.items()
            if (kept := frozenset(one for one in items if one.kind != "rng"))
        }

    @property
    def specs(self) -> dict[Item, TensorSpec]:
        """The spec of what is measured of the steps."""
        specs = dict(zip(self.curve.spread.items, self.curve.spread.specs, strict=True)) if self.curve else {}
        differences = self.trajectory.differences if self.trajectory is not None else ()
        return specs | {one.item: one.left.spec for one in differences if one.left and one.left.spec}

    def not_measured(self, why: int, steps: Iterable[int] | None = None) -> None:
        """Have the curve say why it holds nothing of these steps, or of any."""
        if self.curve is not None:
            for step in self.curve.spread.steps if steps is None else steps:
                self.curve.drop_step(step, why)

    def digests(self) -> dict[tuple[int, Item], _Digests]:
        """What both sides held in the first pass, by (step, item)."""
        held = {}
        for one in self.load.entries if self.load is not None else ():
            item = Item(one.section, one.name, one.key, -1 if one.optimizer is None else one.optimizer)
            sides = [side.digest.value if side and side.digest else None for side in (one.left, one.right)]
            held[self.step, item] = (sides[0], sides[1])
        for other in self.trajectory.differences if self.trajectory is not None else ():
            held[other.step, other.item] = (
                other.left.digest if other.left else None, other.right.digest if other.right else None
            )  # fmt: skip
        return held


@dataclass(slots=True)
class Measure:
    """What came of measuring one rank.

    Attributes:
        measured: the exact differences by (step, item); the load is at step k.
        within: what differs, and no element of it beyond the tolerance.
        steps: the steps that were laid out.
        reasons: why something has no numbers, by (step, item).
        otherwise: why everything else has none.
    """

    measured: dict[tuple[int, Item], TensorDifference] = field(default_factory=dict)
    within: set[tuple[int, Item]] = field(default_factory=set)
    steps: frozenset[int] = frozenset()
    reasons: dict[tuple[int, Item], str] = field(default_factory=dict)
    otherwise: str = UNSEEN

    def why(self, step: int, item: Item, *, at_load: bool) -> str:
        """Why something that differs has no numbers."""
        if item.kind == "rng":
            return GENERATOR
        if (step, item) in self.reasons:
            return self.reasons[step, item]
        return self.otherwise if at_load or step in self.steps else TOO_MUCH


def measured_ranks(
    experiment: CommandExperiment, ranks: Sequence[Apart], *, tolerance: Tolerance
) -> tuple[list[Measure], list[Recorded]]:
    """The exact differences of every rank, in their order, and the runs that were made for it.

    Only what both new runs held as the first ones did is measured; with a tolerance, `within` is told of every pair.
    """
    if not any(one.at_load or one.in_steps for one in ranks):
        return [Measure() for _ in ranks], []
    steps = _affordable(ranks, experiment.free_bytes)
    if steps is None:
        for one in ranks:
            one.not_measured(curves.NO_ROOM)
        return [Measure(otherwise=NO_ROOM) for _ in ranks], []
    for one in ranks:
        one.not_measured(curves.TOO_MUCH, set(one.curve.spread.steps) - steps if one.curve is not None else ())
    try:
        left, right = _wanted(ranks, steps)
        first, second = experiment.again({f"{REFERENCE}{AGAIN}": left}, {f"{RESUMED}{AGAIN}": right})
    except OutputError as error:
        return [Measure(otherwise=str(error)) for _ in ranks], []
    measures = [_of_rank(experiment, (first, second), one, steps, tolerance) for one in ranks]
    for run in (first, second):
        shutil.rmtree(experiment.laid_out(run, 0), ignore_errors=True)
    return measures, [first, second]


def _affordable(ranks: Sequence[Apart], free_bytes: int) -> frozenset[int] | None:
    """The steps to lay out: the first that differs, and of the others as many as there is room for, evenly spread.

    None where not even the load and the first step have room.
    """
    sizes: dict[int, int] = {}
    for one in ranks:
        specs = one.specs
        for step, items in one.in_steps.items():
            sizes[step] = sizes.get(step, 0) + sum(spec.nbytes for item in items if (spec := specs.get(item)))
    loaded = sum(_load_bytes(one) for one in ranks)
    allowed = max(ALWAYS_BYTES, MODEL_SIZES * sum(one.step_bytes for one in ranks))
    room = min(allowed, free_bytes // 4)  # both runs lay out as much, and shall not fill the disk
    first, *rest = sorted(sizes) or [0]
    left = room - loaded - sizes.get(first, 0)
    if left < 0 and loaded + sizes.get(first, 0) > free_bytes // 4:
        return None
    largest = max((sizes[step] for step in rest), default=1)
    count = min(len(rest), max(0, left) // largest)
    chosen = {rest[-1 - round(place * (len(rest) - 1) / max(count - 1, 1))] for place in range(count)}
    return frozenset({first, *chosen} & sizes.keys())


def _load_bytes(one: Apart) -> int:
    entries = one.load.entries if one.load is not None else ()
    return sum(entry.left.spec.nbytes for entry in entries if entry.left is not None and entry.left.spec is not None)


def _wanted(ranks: Sequence[Apart], steps: frozenset[int]) -> tuple[Wanted, Wanted]:
    """What each run lays out, by its own count of steps. A recorded script has the state after step k in that step."""
    left: dict[tuple[int, str], frozenset[Item]] = {}
    right: dict[tuple[int, str], frozenset[Item]] = {}

    def add(side: dict[tuple[int, str], frozenset[Item]], moment: tuple[int, str], items: frozenset[Item]) -> None:
        if items:
            side[moment] = side.get(moment, frozenset()) | items

    for one in ranks:
        add(left, (one.step, STEP), one.at_load)
        add(right, (0, LOAD), one.at_load)
        for step, items in one.in_steps.items():
            if step in steps:
                add(left, (step, STEP), items)
                add(right, (step - one.step, STEP), items)
    return Wanted(left), Wanted(right)


def _of_rank(
    experiment: CommandExperiment,
    runs: tuple[Recorded, Recorded],
    apart: Apart,
    steps: frozenset[int],
    tolerance: Tolerance,
) -> Measure:
    traces = [[one for one in run.traces if one.header.get("rank", 0) == apart.rank] for run in runs]
    if any(len(one) > 1 for one in traces):
        return Measure(otherwise=SEVERAL)
    measure = Measure(steps=steps)
    if not all(traces):
        return measure
    held = apart.digests()
    for step in sorted({apart.step, *steps}):
        places = ((step, STEP), (0, LOAD) if step == apart.step else (step - apart.step, STEP))
        with suppress(OSError, ValueError):  # a run that came to its end before has not laid it out
            pair = [
                _Side(Laid(experiment.laid_out(run, apart.rank), *place), one[0], *place)
                for run, one, place in zip(runs, traces, places, strict=True)
            ]
            curve = apart.curve if step > apart.step else None
            _measure_moment(step, pair, _Into(measure, curve, held, tolerance))
    _check_curve(apart, (traces[0][0], traces[1][0]), steps)
    return measure


def _check_curve(apart: Apart, new: tuple[Trace, Trace], steps: Iterable[int]) -> None:
    """Keep of the curve what both new runs held as the first ones did."""
    if apart.curve is None or apart.first is None:
        return
    for first, again, shift in zip(apart.first, new, (0, apart.step), strict=True):
        with closing(again.shifted(shift)) as trace:
            pair = TracePair(first, trace)
            for step in steps:
                if (step, STEP) not in trace.moments:
                    apart.curve.drop_step(step)
                else:
                    for number in pair.parted(step).numbers.tolist():
                        apart.curve.drop(step, pair.items[number])


class _Side(NamedTuple):
    """What one of the new runs held at a moment: its tensors, and their digests in its trace."""

    laid: Laid
    trace: Trace
    step: int
    moment: str


class _Into(NamedTuple):
    """Where numbers go, what the runs held in the first pass, and the tolerance."""

    measure: Measure
    curve: Curve | None
    held: Mapping[tuple[int, Item], _Digests]
    tolerance: Tolerance


def _measure_moment(step: int, sides: list[_Side], into: _Into) -> None:
    """Measure what both sides have laid out of a moment, where they held it in the first pass too; then remove it."""
    for item in sides[0].laid.places.keys() & sides[1].laid.places.keys():
        specs = [one.laid.spec(item) for one in sides]
        curved = into.curve is not None and into.curve.wants(step, item)
        if not (curved or (step, item) in into.held) or not alike(*specs):
            continue
        views = [one.laid.fetch(item) for one in sides]
        difference = compare_bytes(views[0], views[1], specs[0], specs[1])
        if into.curve is not None:
            into.curve.put(step, item, difference)
        if (step, item) in into.held:
            amounts = into.tolerance.of(item, specs[0].dtype)
            if amounts and not count_beyond(views[0], views[1], *specs, rtol=amounts[0], atol=amounts[1]):
                into.measure.within.add((step, item))
            _note(into, (step, item), difference, sides)
        for view in views:
            view.release()
    for one in sides:
        one.laid.remove()


def _note(into: _Into, at: tuple[int, Item], difference: TensorDifference, sides: list[_Side]) -> None:
    """Keep what is as it was in the first pass."""
    digests = tuple(one.trace.digest(one.step, one.moment, at[1]) for one in sides)
    if digests == into.held[at] and None not in digests:
        into.measure.measured[at] = difference
    else:
        into.measure.reasons[at] = UNREPEATED

"""The numeric floor under state-exact, measured: equal runs and a resumed one side by side, element by element."""

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf, isfinite
from pathlib import Path
from statistics import median
from threading import Condition
from typing import Final, NamedTuple

from ckptcheck.comparison.tensors import TensorDifference, compare_bytes
from ckptcheck.comparison.traces import Difference, compare_traces
from ckptcheck.experiment.job import Errand
from ckptcheck.experiment.laid import Laid, alike
from ckptcheck.experiment.noise import FLOOR_FACTOR, NUMERIC
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import STEP, Item, Sample

LEAST: Final = 2.0**-23
"""The relative L2 distance that is always allowed: one unit in the last place of float32."""

WITHOUT_RESUME: Final = (REFERENCE, "repeat")
"""How the names of all equal runs begin: those that go on without a resume, and their further runs."""

Key = tuple[int, Item]


class Gap(NamedTuple):
    """How far a tensor or number of one run is from the reference's: relative L2 and max abs.

    Both are infinite where no number tells it: one side is not finite, or is zero throughout.
    """

    rel_l2: float
    max_abs: float


@dataclass(frozen=True, slots=True)
class Floor:
    """How far equal runs part at each step, tensor by tensor, and how far the resumed run is from the reference.

    `equal` has the widest gap of all repeats, `resumed` that of the resumed run; what has no entry was equal.
    `rounding` are parameters whose gradient is rounding noise: what they do says nothing.

    From the step `steady_from` on no two of all equal runs that were made agree, so that noise was in each: a tensor
    may be as far as `FLOOR_FACTOR` times the widest gap that equal runs had of it at that step or an earlier one, or
    the median gap of its kind at that step: one repeat may have been closer by chance, a single number above all.

    Before it noise comes in some runs only, and a gap of zero is no floor. The widest gap of its kind at any step
    stands for it: up to `FLOOR_FACTOR` times that is within, from so many times further on is beyond, and what lies
    between is open, as is all that differs where no gap was seen. `repeated` are steps at which all equal runs agree,
    and so do both runs of the resumed one: what differs between these and those is no noise.
    """

    repeats: int
    equal: Mapping[Key, Gap]
    resumed: Mapping[Key, Gap]
    differences: Mapping[Key, TensorDifference] = field(default_factory=dict)
    rounding: frozenset[str] = frozenset()
    steady_from: int | None = None
    repeated: frozenset[int] = frozenset()
    _of_item: dict[Item, list[tuple[int, float]]] = field(default_factory=dict, init=False)
    _of_kind: dict[tuple[int, str], float] = field(default_factory=dict, init=False)
    _widest: dict[str, float] = field(default_factory=dict, init=False)

    def beyond(self, one: Difference) -> bool:
        """Whether a numeric difference of the resumed run is more than equal runs have."""
        if one.left is None or one.right is None or one.left.spec != one.right.spec:
            return True
        return self._distance(one) > self._limits(one.step, one.item)[1]

    def leaves_open(self, one: Difference) -> bool:
        """Whether a numeric difference of the resumed run may be noise of which too little was seen to tell."""
        within, beyond = self._limits(one.step, one.item)
        return within < self._distance(one) <= beyond

    def allowed(self, step: int, item: Item) -> float:
        """The relative L2 distance that a resumed run may have."""
        return self._limits(step, item)[0]

    @property
    def seen(self) -> bool:
        """Whether the noise was in any of the equal runs that were made once more to measure it."""
        return any(gap.rel_l2 > 0 for gap in self.equal.values())

    def steady_at(self, step: int) -> bool:
        """Whether noise was in each run by a step."""
        return self.steady_from is not None and step >= self.steady_from

    def _distance(self, one: Difference) -> float:
        """How far the resumed run is from the reference; 0 where that says nothing, or was not measured."""
        if one.item.name in self.rounding and one.item.kind in ("grad", "state", "param"):
            return 0.0
        return self.resumed.get((one.step, one.item), Gap(0.0, 0.0)).rel_l2

    def _limits(self, step: int, item: Item) -> tuple[float, float]:
        """Up to where a relative L2 distance is within the floor, and from where on it is beyond."""
        if step in self.repeated:
            return 0.0, 0.0
        own = max(self._own(step, item), self._median(step, item.kind)) if self.steady_at(step) else 0.0
        if own:
            return (max(LEAST, FLOOR_FACTOR * own),) * 2
        widest = self._widest_of(item.kind)
        if not widest:
            return LEAST, inf
        return max(LEAST, FLOOR_FACTOR * widest), max(LEAST, FLOOR_FACTOR**2 * widest)

    def _median(self, step: int, kind: str) -> float:
        if (step, kind) not in self._of_kind:
            of_kind = [self._own(step, other) for at, other in self.equal if at == step and other.kind == kind]
            self._of_kind[step, kind] = median(of_kind) if of_kind else 0.0
        return self._of_kind[step, kind]

    def _widest_of(self, kind: str) -> float:
        """The widest gap of a kind at any step, or of all kinds where this one has none; 0 where nothing differs."""
        if not self._widest:
            for (_, item), gap in self.equal.items():
                if isfinite(gap.rel_l2) and item.name not in self.rounding:
                    self._widest[item.kind] = max(gap.rel_l2, self._widest.get(item.kind, 0.0))
        return self._widest.get(kind) or max(self._widest.values(), default=0.0)

    def _own(self, step: int, item: Item) -> float:
        """The widest gap of equal runs up to a step: noise grows, and is small at a step by chance only."""
        if not self._of_item:
            for (at, other), gap in self.equal.items():
                self._of_item.setdefault(other, []).append((at, gap.rel_l2))
        return max((gap for at, gap in self._of_item.get(item, ()) if at <= step), default=0.0)


class FloorPass:
    """Makes the reference, its repeats and a resumed run once more, in lockstep, and measures each at every step.

    Storage is bounded by a moment of each run, whatever the number of steps.
    """

    def __init__(self, experiment: Experiment, run: Resumed, repeats: Sequence[str]) -> None:
        self._experiment, self._run = experiment, run
        self._names = {one: f"{one}-again-for-floor-of-{run.name}" for one in (REFERENCE, *repeats, run.name)}
        self._of = {new: name for name, new in self._names.items()}
        self._arrived: dict[int, dict[str, Path]] = {}
        self._gone: set[str] = set()
        self._turn = Condition()
        self._found: dict[str, dict[Key, TensorDifference]] = {name: {} for name in self._names}

    def measure(self) -> Floor:
        """The floor over the steps that follow the resume."""
        wanted = self._wanted()
        asked: dict[str, tuple[str, Path]] = {}
        for name, again in self._names.items():
            path = self._experiment.scratch(f"{again}.wanted.json")
            path.write_text(json.dumps([{"step": step, "moment": STEP, "items": items}
                                        for step, items in wanted.items()]))  # fmt: skip
            asked[name] = again, path
        traces = self._experiment.again(asked, max(wanted, default=self._run.step + 1), self)
        gaps = {name: self._gaps(name, wanted, traces) for name in self._names if name != REFERENCE}
        resumed = gaps.pop(self._run.name)
        equal: dict[Key, Gap] = {}
        for one in gaps.values():
            for key, gap in one.items():
                equal[key] = Gap(*map(max, gap, equal.get(key, Gap(0.0, 0.0))))
        steady_from, repeated = self._agreement([*wanted], traces.get(self._run.name))
        return Floor(len(gaps), equal, resumed, self._found[self._run.name], frozenset(), steady_from, repeated)

    def _agreement(self, steps: list[int], again: Trace | None) -> tuple[int | None, frozenset[int]]:
        """From which step on no two equal runs agree, and at which all do, and both resumed runs with each other.

        All equal runs count that were made, the first ones beside those that were made once more: a run that differs
        from itself is a pair of equal runs too. Runs that have parted stay apart, so that a few steps tell.
        """
        equal = [trace for name, trace in self._experiment.traces.items() if name.startswith(WITHOUT_RESUME)]
        resumed = [trace for trace in (self._experiment.traces[self._run.name], again) if trace is not None]
        steady = bisect_left(steps, True, key=lambda step: _all_apart(equal, step))
        quiet = bisect_left(steps, True, key=lambda step: len(_contents(equal, step)) > 1)
        quiet = bisect_left(steps, True, hi=quiet, key=lambda step: len(_contents(resumed, step)) > 1)
        return steps[steady] if steady < len(steps) else None, frozenset(steps[:quiet] if len(resumed) > 1 else ())

    def _wanted(self) -> dict[int, list[Item]]:
        """The numeric items that differ between any of the runs, by step after the resume."""
        traces = self._experiment.traces
        wanted: dict[int, dict[Item, None]] = {}
        for name in self._names:
            if name != REFERENCE and name in traces:
                diff = compare_traces(traces[REFERENCE], traces[name], first=self._run.step + 1, every=True)
                for one in diff.differences:
                    if one.stage in NUMERIC:
                        wanted.setdefault(one.step, {})[one.item] = None
        return {step: list(items) for step, items in sorted(wanted.items())}

    def captured(self, job: Errand, step: int, moment: str) -> None:
        """Wait until every run that goes on has laid out a step; whoever comes last compares."""
        assert job.capture is not None
        with self._turn:
            self._arrived.setdefault(step, {})[self._of[job.name]] = job.capture
            self._settle()
            self._turn.wait_for(lambda: step not in self._arrived)

    def ended(self, job: Errand) -> None:
        """Wait for this run no longer."""
        with self._turn:
            self._gone.add(self._of[job.name])
            self._settle()

    def _settle(self) -> None:
        """Compare each step that all have laid out but those that have gone."""
        for step, arrived in list(self._arrived.items()):
            if not self._names.keys() - arrived.keys() - self._gone:
                laid = {name: Laid(folder, step, STEP) for name, folder in arrived.items()}
                for name, one in laid.items():
                    if REFERENCE in laid and name != REFERENCE:
                        self._compare(name, step, laid[REFERENCE], one)
                for one in laid.values():
                    one.remove()
                del self._arrived[step]
        self._turn.notify_all()

    def _compare(self, name: str, step: int, left: Laid, right: Laid) -> None:
        for item in left.places.keys() & right.places.keys():
            specs = left.spec(item), right.spec(item)
            if alike(*specs):
                views = left.fetch(item), right.fetch(item)
                self._found[name][step, item] = compare_bytes(*views, *specs)
                for view in views:
                    view.release()

    def _gaps(self, name: str, wanted: Mapping[int, list[Item]], traces: Mapping[str, Trace]) -> dict[Key, Gap]:
        """The gaps of one run: of tensors as measured, of plain numbers from the traces."""
        gaps = {key: _gap_of(one) for key, one in self._found[name].items()}
        if name not in traces or REFERENCE not in traces:
            return gaps
        for step, items in wanted.items():
            for item in items:
                if (step, item) not in gaps:
                    gap = _gap_of_numbers(*(traces[one].sample(step, STEP, item) for one in (REFERENCE, name)))
                    if gap is not None:
                        gaps[step, item] = gap
        return gaps


def _contents(traces: Iterable[Trace], step: int) -> list[bytes]:
    """What each run that came to a step held of what kernels compute: unlike bytes for unlike contents, once each."""
    return [*dict.fromkeys(_content(one, step) for one in traces if (step, STEP) in one.moments)]


def _all_apart(traces: Sequence[Trace], step: int) -> bool:
    return len(_contents(traces, step)) == sum((step, STEP) in one.moments for one in traces) > 1


def _content(trace: Trace, step: int) -> bytes:
    digest = blake2b(digest_size=16)
    for item, sample in sorted(trace.samples(step, STEP).items()):
        if item.stage in NUMERIC:
            digest.update(repr((item, sample.digest, sample.presence)).encode())
    return digest.digest()


def _gap_of(one: TensorDifference) -> Gap:
    if one.nan or one.inf or one.max_abs is None or (one.rel_l2 is None and one.max_abs):
        return Gap(float("inf"), float("inf"))
    return Gap(one.rel_l2 or 0.0, one.max_abs)


def _gap_of_numbers(left: Sample | None, right: Sample | None) -> Gap | None:
    """The gap of two numbers; None where either side has none."""
    pair = [one.value if one is not None else None for one in (left, right)]
    if not (isinstance(pair[0], int | float) and isinstance(pair[1], int | float)):
        return None
    apart = abs(pair[1] - pair[0])
    return Gap(apart / abs(pair[0]) if pair[0] else float("inf") if apart else 0.0, apart)

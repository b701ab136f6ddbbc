"""The numeric floor under state-exact, measured: equal runs and a resumed one side by side, element by element."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Condition
from typing import Final, NamedTuple

from ckptcheck.comparison.tensors import TensorDifference, compare_bytes
from ckptcheck.comparison.traces import Difference, compare_traces
from ckptcheck.experiment.job import Job
from ckptcheck.experiment.laid import Laid, alike
from ckptcheck.experiment.noise import FLOOR_FACTOR, NUMERIC
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import STEP, Item, Sample

LEAST: Final = 2.0**-23
"""The relative L2 distance that is always allowed: one unit in the last place of float32."""

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
    A tensor may be as far as `FLOOR_FACTOR` times the widest gap that equal runs had of it at that step or an earlier
    one, or the median gap of its kind at that step: one repeat may have been closer by chance, a single number above
    all. `rounding` are parameters whose gradient is rounding noise: what they do says nothing.
    """

    repeats: int
    equal: Mapping[Key, Gap]
    resumed: Mapping[Key, Gap]
    differences: Mapping[Key, TensorDifference] = field(default_factory=dict)
    rounding: frozenset[str] = frozenset()
    _of_item: dict[Item, list[tuple[int, float]]] = field(default_factory=dict, init=False)
    _of_kind: dict[tuple[int, str], float] = field(default_factory=dict, init=False)

    def beyond(self, one: Difference) -> bool:
        """Whether a numeric difference of the resumed run is more than equal runs have."""
        if one.left is None or one.right is None or one.left.spec != one.right.spec:
            return True
        if one.item.name in self.rounding and one.item.kind in ("grad", "state", "param"):
            return False
        gap = self.resumed.get((one.step, one.item))
        return gap is not None and gap.rel_l2 > self.allowed(one.step, one.item)

    def allowed(self, step: int, item: Item) -> float:
        """The relative L2 distance that a resumed run may have."""
        if (step, item.kind) not in self._of_kind:
            of_kind = [self._own(step, other) for at, other in self.equal if at == step and other.kind == item.kind]
            self._of_kind[step, item.kind] = median(of_kind) if of_kind else 0.0
        return max(LEAST, FLOOR_FACTOR * max(self._own(step, item), self._of_kind[step, item.kind]))

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
        return Floor(len(gaps), equal, resumed, self._found[self._run.name])

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

    def captured(self, job: Job, step: int, moment: str) -> None:
        """Wait until every run that goes on has laid out a step; whoever comes last compares."""
        assert job.capture is not None
        with self._turn:
            self._arrived.setdefault(step, {})[self._of[job.name]] = job.capture
            self._settle()
            self._turn.wait_for(lambda: step not in self._arrived)

    def ended(self, job: Job) -> None:
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

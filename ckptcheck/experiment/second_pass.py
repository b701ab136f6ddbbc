"""The second pass: two runs once more in lockstep, for the exact difference of what the first pass saw differ."""

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Condition
from typing import TypeAlias

from ckptcheck.comparison.curve import ANOTHER_SOURCE, UNREPEATED, Curve
from ckptcheck.comparison.states import StateDiff
from ckptcheck.comparison.tensors import TensorDifference, compare_bytes, count_beyond
from ckptcheck.comparison.tolerance import Tolerance
from ckptcheck.comparison.trace_pairs import TracePair
from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.experiment.job import Errand
from ckptcheck.experiment.laid import Laid, alike, measurable_at_load, measurable_in_steps
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import LOAD, SAVED, STEP, Item

Measured: TypeAlias = dict[tuple[int, Item], TensorDifference]


class SecondPass:
    """Measures what differs between a run and one resumed after `step`, a moment at a time.

    Each side lays the wanted tensors of a moment on disk and waits; they are compared and removed, and both go
    on. Storage is bounded by two moments, whatever the number of steps.
    """

    def __init__(self, experiment: Experiment, run: Resumed, *, tolerance: Tolerance, against: str = REFERENCE) -> None:
        self._experiment, self._against = experiment, against
        self._left, self._right, self._step = run.source, run.name, run.step
        # The left run may be made again for several resumed ones.
        self._new_names = {self._left: f"{self._left}-again-for-{self._right}", self._right: f"{self._right}-again"}
        self._arrived: dict[int, dict[str, tuple[Path, str]]] = {}
        self._gone: set[str] = set()
        self._turn = Condition()
        self._tolerance = tolerance
        self._measured: Measured = {}
        self._asked: set[tuple[int, Item]] = set()
        self._curve: Curve | None = None
        self.within: set[tuple[int, Item]] = set()
        """What differs, and no element of it beyond the tolerance."""

    def measure(
        self, load: StateDiff | None, trajectory: TraceDiff | None, curve: Curve | None = None
    ) -> tuple[Measured, str]:
        """The exact differences by (step, item), and why some are missing ("" where none is).

        What `curve` wants is put there.
        """
        at_load, steps = measurable_at_load(load), measurable_in_steps(trajectory)
        lasting = curve.wanted() if curve is not None else []
        if not at_load and not steps and not lasting:
            return {}, ""
        self._curve = curve
        self._asked = {(step, item) for step, items in steps.items() for item in items}
        self._asked |= {(self._step, item) for item in at_load}
        wanted: dict[str, tuple[str, Path]] = {}
        for name, moment in ((self._left, SAVED), (self._right, LOAD)):
            rows: list[dict[str, object]] = [{"step": self._step, "moment": moment, "items": at_load}]
            rows += [{"step": step, "moment": STEP, "items": items} for step, items in steps.items()]
            rows += [{"steps": many, "moment": STEP, "items": [item for item, _ in items],
                      "first": [first for _, first in items]} for many, items in lasting]  # fmt: skip
            new_name = self._new_names[name]
            path = self._experiment.scratch(f"{new_name}.wanted.json")
            path.write_text(json.dumps(rows))
            wanted[name] = new_name, path
        last = max([self._step + 1, *steps, *(step for many, _ in lasting for step in many[-1:])])
        again = self._experiment.again(wanted, last, self)
        self._check_curve(again)
        return self._checked(again)

    def captured(self, job: Errand, step: int, moment: str) -> None:
        """Wait until both sides have laid out a step; whoever comes last compares."""
        side = self._left if job.name == self._new_names[self._left] else self._right
        assert job.capture is not None
        with self._turn:
            arrived = self._arrived.setdefault(step, {})
            arrived[side] = (job.capture, moment)
            if len(arrived) == 2:
                self._compare(step, arrived[self._left], arrived[self._right])
                del self._arrived[step]
                self._turn.notify_all()
            else:
                self._turn.wait_for(lambda: step not in self._arrived or self._gone)

    def ended(self, job: Errand) -> None:
        """Wait for this side no longer."""
        with self._turn:
            self._gone.add(job.name)
            self._turn.notify_all()

    def _compare(self, step: int, left: tuple[Path, str], right: tuple[Path, str]) -> None:
        sides = (Laid(left[0], step, left[1]), Laid(right[0], step, right[1]))
        for item in sides[0].places.keys() & sides[1].places.keys():
            curved = self._curve is not None and step > self._step and self._curve.wants(step, item)
            if curved or (step, item) in self._asked:
                self._compare_one(step, item, sides)
        for side in sides:
            side.remove()

    def _compare_one(self, step: int, item: Item, sides: tuple[Laid, Laid]) -> None:
        specs = [side.spec(item) for side in sides]
        if not alike(*specs):
            return
        views = [side.fetch(item) for side in sides]
        difference = compare_bytes(views[0], views[1], specs[0], specs[1])
        if self._curve is not None and step > self._step:
            self._curve.put(step, item, difference)
        if (step, item) in self._asked:
            self._measured[step, item] = difference
            amounts = self._tolerance.of(item, specs[0].dtype)
            if amounts and not count_beyond(views[0], views[1], *specs, rtol=amounts[0], atol=amounts[1]):
                self.within.add((step, item))
        for view in views:
            view.release()

    def _check_curve(self, again: Mapping[str, Trace]) -> None:
        """Keep of the curve what both new runs held as the first ones did."""
        if self._curve is None:
            return
        left_why = UNREPEATED if self._left == self._against else ANOTHER_SOURCE
        for first, new, why in (
            (self._compared_left, again.get(self._left), left_why),
            (self._experiment.traces[self._right], again.get(self._right), UNREPEATED),
        ):
            pair = TracePair(first, new) if new is not None else None
            for step in self._curve.spread.steps:
                if pair is None or new is None or (step, STEP) not in new.moments:
                    self._curve.drop_step(step)
                    continue
                for number in pair.parted(step).numbers.tolist():
                    self._curve.drop(step, pair.items[number], why)

    @property
    def _compared_left(self) -> Trace:
        """The run that steps are compared with; a second resume in a row loads what the run before it has saved."""
        return self._experiment.traces[self._against]

    def _checked(self, again: Mapping[str, Trace]) -> tuple[Measured, str]:
        """Keep what the second pass saw as the first did: a run that does not repeat itself measures nothing."""
        pairs = [(self._experiment.traces[name], again.get(name)) for name in (self._left, self._right)]
        in_steps = [(self._compared_left, pairs[0][1]), pairs[1]]
        kept = {}
        for (step, item), difference in self._measured.items():
            at_load = step == self._step
            moments = (SAVED, LOAD) if at_load else (STEP, STEP)
            if all(new is not None and first.digest(step, moment, item) == new.digest(step, moment, item)
                   for (first, new), moment in zip(pairs if at_load else in_steps, moments, strict=True)):  # fmt: skip
                kept[step, item] = difference
        missing = len(self._measured) - len(kept)
        if not missing:
            return kept, ""
        did_not = "did not repeat themselves in the second pass"
        if self._left != self._against:
            did_not += f", or are in {self._left} not what they are in the {self._against} run"
        return kept, f"{missing} of {len(self._measured)} tensors {did_not}"

"""The second pass: two runs once more in lockstep, for the exact difference of what the first pass saw differ."""

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Condition
from typing import TypeAlias

from ckptcheck.comparison.states import StateDiff
from ckptcheck.comparison.tensors import TensorDifference, compare_bytes, count_beyond
from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.experiment.job import Job
from ckptcheck.experiment.laid import Laid, alike, measurable_at_load, measurable_in_steps
from ckptcheck.experiment.plan import Experiment, Resumed
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import LOAD, SAVED, STEP, Item

Measured: TypeAlias = dict[tuple[int, Item], TensorDifference]


class SecondPass:
    """Measures what differs between a run and one resumed after `step`, a moment at a time.

    Each side lays the wanted tensors of a moment on disk and waits; they are compared and removed, and both go
    on. Storage is bounded by two moments, whatever the number of steps.
    """

    def __init__(self, experiment: Experiment, run: Resumed, *, rtol: float, atol: float) -> None:
        self._experiment = experiment
        self._left, self._right, self._step = run.source, run.name, run.step
        # The left run may be made again for several resumed ones.
        self._new_names = {self._left: f"{self._left}-again-for-{self._right}", self._right: f"{self._right}-again"}
        self._arrived: dict[int, dict[str, tuple[Path, str]]] = {}
        self._gone: set[str] = set()
        self._turn = Condition()
        self._tolerance = {"rtol": rtol, "atol": atol} if rtol or atol else None
        self._measured: Measured = {}
        self.within: set[tuple[int, Item]] = set()
        """What differs, and no element of it beyond the tolerance."""

    def measure(self, load: StateDiff | None, trajectory: TraceDiff | None) -> tuple[Measured, str]:
        """The exact differences by (step, item), and why some are missing ("" where none is)."""
        at_load, steps = measurable_at_load(load), measurable_in_steps(trajectory)
        if not at_load and not steps:
            return {}, ""
        wanted: dict[str, tuple[str, Path]] = {}
        for name, moment in ((self._left, SAVED), (self._right, LOAD)):
            rows = [{"step": self._step, "moment": moment, "items": at_load}]
            rows += [{"step": step, "moment": STEP, "items": items} for step, items in steps.items()]
            again = self._new_names[name]
            path = self._experiment.scratch(f"{again}.wanted.json")
            path.write_text(json.dumps(rows))
            wanted[name] = again, path
        last = max(steps, default=self._step + 1)
        return self._checked(self._experiment.again(wanted, last, self))

    def captured(self, job: Job, step: int, moment: str) -> None:
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

    def ended(self, job: Job) -> None:
        """Wait for this side no longer."""
        with self._turn:
            self._gone.add(job.name)
            self._turn.notify_all()

    def _compare(self, step: int, left: tuple[Path, str], right: tuple[Path, str]) -> None:
        sides = [Laid(folder, step, moment) for folder, moment in (left, right)]
        for item in sides[0].places.keys() & sides[1].places.keys():
            specs = [side.spec(item) for side in sides]
            if alike(*specs):
                views = [side.fetch(item) for side in sides]
                self._measured[step, item] = compare_bytes(views[0], views[1], specs[0], specs[1])
                if self._tolerance and not count_beyond(views[0], views[1], specs[0], specs[1], **self._tolerance):
                    self.within.add((step, item))
                for view in views:
                    view.release()
        for side in sides:
            side.remove()

    def _checked(self, again: Mapping[str, Trace]) -> tuple[Measured, str]:
        """Keep what the second pass saw as the first did: a run that does not repeat itself measures nothing."""
        pairs = [(self._experiment.traces[name], again.get(name)) for name in (self._left, self._right)]
        kept = {}
        for (step, item), difference in self._measured.items():
            at_load = step == self._step
            moments = (SAVED, LOAD) if at_load else (STEP, STEP)
            if all(new is not None and first.digest(step, moment, item) == new.digest(step, moment, item)
                   for (first, new), moment in zip(pairs, moments, strict=True)):  # fmt: skip
                kept[step, item] = difference
        missing = len(self._measured) - len(kept)
        return (
            kept,
            f"{missing} of {len(self._measured)} tensors did not repeat themselves in the second pass"
            if missing
            else "",
        )

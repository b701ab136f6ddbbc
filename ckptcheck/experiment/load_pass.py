"""What a load changes, measured where runs do not repeat themselves: saved once more, and loaded from there."""

import json
from pathlib import Path

from ckptcheck.comparison.states import StateDiff
from ckptcheck.comparison.tensors import TensorDifference, compare_bytes
from ckptcheck.experiment.job import Errand
from ckptcheck.experiment.laid import Laid, alike, measurable_at_load
from ckptcheck.experiment.plan import Experiment, Resumed
from ckptcheck.trace.items import LOAD, SAVED, Item


class LoadPass:
    """Makes a run once more up to its save, then the resumed one from that checkpoint, and measures the load.

    The second pass makes both from the start side by side; where they part by noise, what the one holds is not what the
    other loads. Storage is bounded by two moments.
    """

    def __init__(self, experiment: Experiment, run: Resumed) -> None:
        self._experiment, self._run = experiment, run
        self._laid: list[tuple[Path, int, str]] = []

    def measure(self, load: StateDiff) -> dict[tuple[int, Item], TensorDifference]:
        """The exact differences of a load by (step, item)."""
        items = measurable_at_load(load)
        if not items:
            return {}
        source, name = self._run.source, self._run.name
        saving, loading = f"{source}-again-saving-for-{name}", f"{name}-again-loading"
        self._make(source, saving, SAVED, items, {})
        self._make(name, loading, LOAD, items, {name: saving})
        laid = [Laid(*place) for place in self._laid]
        measured = self._compared(*laid) if len(laid) == len((saving, loading)) else {}
        for one in laid:
            one.remove()
        return measured

    def _make(self, name: str, again: str, moment: str, items: list[Item], sources: dict[str, str]) -> None:
        path = self._experiment.scratch(f"{again}.wanted.json")
        path.write_text(json.dumps([{"step": self._run.step, "moment": moment, "items": items}]))
        self._experiment.again({name: (again, path)}, self._run.step, self, sources)

    def captured(self, job: Errand, step: int, moment: str) -> None:
        """Leave what was laid out where it lies: nobody waits for it."""
        assert job.capture is not None
        self._laid.append((job.capture, step, moment))

    def ended(self, job: Errand) -> None:
        """Nobody waits."""

    def _compared(self, left: Laid, right: Laid) -> dict[tuple[int, Item], TensorDifference]:
        found = {}
        for item in left.places.keys() & right.places.keys():
            specs = left.spec(item), right.spec(item)
            if alike(*specs):
                views = left.fetch(item), right.fetch(item)
                found[self._run.step, item] = compare_bytes(*views, *specs)
                for view in views:
                    view.release()
        return found

"""The tensors that a run has laid out on disk for one moment of a second pass."""

import json
import mmap
from pathlib import Path
from typing import Any

from ckptcheck.comparison.spread import alike
from ckptcheck.comparison.states import StateDiff
from ckptcheck.comparison.traces import TraceDiff
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.items import Item

__all__ = ["Laid", "alike", "measurable_at_load", "measurable_in_steps"]


class Laid:
    """The tensors of one moment, mapped. OSError or ValueError where the moment was not laid out whole."""

    def __init__(self, folder: Path, step: int, moment: str) -> None:
        self._bytes = folder / f"{step}-{moment}.bin"
        self._index = folder / f"{step}-{moment}.json"
        self.places: dict[Item, dict[str, Any]] = {
            Item(*row["item"]): row for row in json.loads(self._index.read_text())
        }
        self._map: mmap.mmap | None = None
        if self._bytes.is_file() and self._bytes.stat().st_size:
            with self._bytes.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def spec(self, item: Item) -> TensorSpec:
        """The dtype and shape of a tensor."""
        row = self.places[item]
        return TensorSpec(row["dtype"], tuple(row["shape"]))

    def fetch(self, item: Item) -> memoryview:
        """The row-major bytes of a tensor; to be released before `remove`."""
        size = self.spec(item).nbytes
        start = self.places[item]["offset"]
        return memoryview(self._map)[start : start + size] if self._map is not None and size else memoryview(b"")

    def remove(self) -> None:
        """Take it off the disk."""
        if self._map is not None:
            self._map.close()
        self._bytes.unlink(missing_ok=True)
        self._index.unlink()


def measurable_at_load(load: StateDiff | None) -> list[Item]:
    """The items of a load that differ in their elements."""
    return [Item(one.section, one.name, one.key, -1 if one.optimizer is None else one.optimizer)
            for one in (load.entries if load else ())
            if one.changed and one.left and one.right and alike(one.left.spec, one.right.spec)]  # fmt: skip


def measurable_in_steps(trajectory: TraceDiff | None) -> dict[int, list[Item]]:
    """The items that differ in their elements, by step."""
    steps: dict[int, list[Item]] = {}
    for one in trajectory.differences if trajectory else ():
        if one.left and one.right and alike(one.left.spec, one.right.spec):
            steps.setdefault(one.step, []).append(one.item)
    return steps

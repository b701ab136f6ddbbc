"""The bytes of wanted tensors, laid out moment by moment for a second pass."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch

from ckptcheck.state.tensor_bytes import row_major_bytes, spec_of
from ckptcheck.trace.items import Item


@dataclass(slots=True)
class _Moment:
    """A moment in progress: its file, and where in it each item lies."""

    file: IO[bytes]
    index: dict[Item, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Lasting:
    """Items that are wanted of many steps, each from a first one on: a set for each step would fill the memory."""

    steps: frozenset[int]
    moment: str
    first: Mapping[Item, int]
    begin: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "_Lasting":
        first = {Item(*item): step for item, step in zip(row["items"], row["first"], strict=True)}
        return cls(frozenset(row["steps"]), row["moment"], first, min(row["first"]))

    def begun(self, step: int, moment: str) -> bool:
        return moment == self.moment and step >= self.begin and step in self.steps

    def has(self, step: int, moment: str, item: Item) -> bool:
        return self.begun(step, moment) and self.first.get(item, step + 1) <= step


class Capture:
    """Writes the bytes of wanted tensors, one file a moment with an index beside it. Keeps no tensor.

    Moments may overlap: in a script the load is written when its first step has begun.
    """

    def __init__(self, folder: Path, wanted: Path) -> None:
        """`wanted` is a file of JSON; OSError or ValueError where it is none.

        Its rows are {"step", "moment", "items"}, where items are wanted of one moment, or {"steps", "moment", "items",
        "first"}, where each item is wanted of all these steps from its own first one on.
        """
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        rows = json.loads(wanted.read_text())
        self._wanted: dict[tuple[int, str], set[Item]] = {
            (one["step"], one["moment"]): {Item(*item) for item in one["items"]} for one in rows if "step" in one
        }
        self._lasting = [_Lasting.of(one) for one in rows if "steps" in one]
        self._moments: dict[tuple[int, str], _Moment] = {}

    def wants(self, step: int, moment: str, item: Item) -> bool:
        """Whether the item of this moment was asked for."""
        return item in self._wanted.get((step, moment), ()) or any(one.has(step, moment, item) for one in self._lasting)

    def take(self, step: int, moment: str, item: Item, tensor: torch.Tensor) -> None:
        """Write the tensor if it is wanted. A later sample of the same item in the same moment wins."""
        if not self.wants(step, moment, item):
            return
        one = self._moments.get((step, moment))
        if one is None:
            one = self._moments[step, moment] = _Moment(open(self._folder / f"{step}-{moment}.bin", "wb"))  # noqa: SIM115
        spec = spec_of(tensor)
        one.index[item] = {"dtype": spec.dtype, "shape": spec.shape, "offset": one.file.tell()}
        one.file.write(row_major_bytes(tensor))

    def close(self, step: int, moment: str) -> bool:
        """End the moment; True where anything of it was wanted, and the index is then on disk."""
        if (step, moment) not in self._wanted and not any(one.begun(step, moment) for one in self._lasting):
            return False
        one = self._moments.pop((step, moment), None)
        if one is not None:
            one.file.close()
        rows = [{"item": list(item), **place} for item, place in one.index.items()] if one is not None else []
        (self._folder / f"{step}-{moment}.json").write_text(json.dumps(rows))
        return True

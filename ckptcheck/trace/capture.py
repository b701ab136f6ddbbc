"""The bytes of wanted tensors, laid out moment by moment for a second pass."""

import json
from pathlib import Path
from typing import IO, Any

import torch

from ckptcheck.state.tensor_bytes import row_major_bytes, spec_of
from ckptcheck.trace.items import Item


class Capture:
    """Writes the bytes of wanted tensors, one file a moment with an index beside it. Keeps no tensor."""

    def __init__(self, folder: Path, wanted: Path) -> None:
        """`wanted` is a file of JSON: rows {"step", "moment", "items"}. OSError or ValueError where it is none."""
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        rows = json.loads(wanted.read_text())
        self._wanted: dict[tuple[int, str], set[Item]] = {
            (one["step"], one["moment"]): {Item(*item) for item in one["items"]} for one in rows
        }
        self._file: IO[bytes] | None = None
        self._index: dict[Item, dict[str, Any]] = {}

    def wants(self, step: int, moment: str, item: Item) -> bool:
        """Whether the item of this moment was asked for."""
        return item in self._wanted.get((step, moment), ())

    def take(self, step: int, moment: str, item: Item, tensor: torch.Tensor) -> None:
        """Write the tensor if it is wanted. A later sample of the same item in the same moment wins."""
        if not self.wants(step, moment, item):
            return
        if self._file is None:
            self._file = open(self._folder / f"{step}-{moment}.bin", "wb")  # noqa: SIM115
        spec = spec_of(tensor)
        self._index[item] = {"dtype": spec.dtype, "shape": spec.shape, "offset": self._file.tell()}
        self._file.write(row_major_bytes(tensor))

    def close(self, step: int, moment: str) -> bool:
        """End the moment; True where anything of it was wanted, and the index is then on disk."""
        if (step, moment) not in self._wanted:
            return False
        if self._file is not None:
            self._file.close()
            self._file = None
        rows = [{"item": list(item), **place} for item, place in self._index.items()]
        (self._folder / f"{step}-{moment}.json").write_text(json.dumps(rows))
        self._index = {}
        return True

"""The trace file of one process: made when there is something to write, named by rank, closed at the end."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from ckptcheck.state.flags import flags
from ckptcheck.state.tensor_bytes import default_algorithm
from ckptcheck.trace.file import SUFFIX, TraceWriter
from ckptcheck.trace.measuring import Measurer
from ckptcheck.trace.script.background import Background
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.rank import rank_and_world


class Tracing:
    """Makes the file and what writes into it when first asked for."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._writer: TraceWriter | None = None
        self._background: Background | None = None

    def background(self) -> Background:
        """What measures and writes."""
        if self._background is None:
            algorithm = self._orders.digest or default_algorithm({_device()})
            self._writer = TraceWriter(self._file(), self._header(algorithm))
            self._background = Background(Measurer(algorithm), self._writer)
        return self._background

    def _file(self) -> Path:
        rank, _ = rank_and_world()
        first = self._orders.traces / f"rank-{rank}{SUFFIX}"
        # A script may train in several processes that are not ranks of one training.
        return first if not first.exists() else self._orders.traces / f"rank-{rank}.pid-{os.getpid()}{SUFFIX}"

    def _header(self, algorithm: str) -> dict[str, Any]:
        rank, world = rank_and_world()
        header = {
            "run": self._orders.run,
            "driver": "script",
            "digest": algorithm,
            "rank": rank,
            "world_size": world,
            "pid": os.getpid(),
            "command": list(self._orders.command),
            "arguments": sys.argv,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "platform": platform.platform(),
            "device": _device(),
            "flags": flags(),
            "every": self._orders.every,
        }
        numpy = sys.modules.get("numpy")
        return header | ({"numpy": numpy.__version__} if numpy is not None else {})

    def close(self, *, clean: bool, cost_s: float) -> None:
        """Finish the file."""
        if self._background is not None and self._writer is not None:
            self._background.close()
            self._writer.set_header({"recording_s": cost_s})
            self._writer.close(clean)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]

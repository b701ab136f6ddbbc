"""The trace file of one process: made when there is something to write, named by rank, closed at the end."""

import itertools
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ckptcheck.errors import OutputError
from ckptcheck.state.flags import flags
from ckptcheck.state.tensor_bytes import default_algorithm
from ckptcheck.trace.file import SUFFIX, TraceWriter
from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.measuring import Measurer
from ckptcheck.trace.script.background import Background
from ckptcheck.trace.script.orders import Orders
from ckptcheck.trace.script.rank import rank_and_world


class LateWriter(TraceWriter):
    """Makes its file with the first moment that is written: who computes gradients, and never trains, leaves none.

    `names` are tried in their order, and the first that nobody has is taken; `header` is asked when the file is made.
    """

    def __init__(self, names: Callable[[], Iterator[Path]], header: Callable[[], Mapping[str, Any]]) -> None:
        self._names = names
        self._header = header
        self._made = False

    def write(self, step: int, moment: str, samples: Iterable[tuple[Item, Sample]]) -> None:
        """As `TraceWriter.write`."""
        if not self._made:
            self._make()
        super().write(step, moment, samples)

    def _make(self) -> None:
        header = self._header()
        self._made = any(self._makes(path, header) for path in self._names())

    def _makes(self, path: Path, header: Mapping[str, Any]) -> bool:
        self._made = True  # so that making it sets its header
        try:
            super().__init__(path, header)
        except OutputError as error:
            self._made = False
            # Another process may make the same file between a look and this: only the making itself tells.
            if isinstance(error.__context__, FileExistsError) and path.is_file():
                return False
            raise
        except BaseException:  # an exception that another thread or a signal handler of the script raises in it
            self._made = False
            if "_base" in vars(self):  # the file is ours, and not whole
                path.unlink(missing_ok=True)
            raise
        return True

    def set_header(self, header: Mapping[str, Any]) -> None:
        """As `TraceWriter.set_header`; nothing where there is no file."""
        if self._made:
            super().set_header(header)

    def close(self, clean: bool) -> None:
        """As `TraceWriter.close`; nothing where there is no file."""
        if self._made:
            super().close(clean)


class Tracing:
    """Makes the file and what writes into it when first asked for, in each process that a fork makes of this one."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._algorithm = ""
        self._writer: LateWriter | None = None
        self._background: Background | None = None
        self._process = os.getpid()
        self._left: list[object] = []
        """What belongs to the process that this one was forked from: neither used nor closed here, and never freed."""

    def background(self) -> Background:
        """What measures and writes."""
        if self._process != os.getpid():
            self._left += [self._writer, self._background]
            self._background, self._process = None, os.getpid()
        if self._background is None:
            self._algorithm = self._orders.digest or default_algorithm({_device()})
            self._writer = LateWriter(self._names, self._header)
            self._background = Background(Measurer(self._algorithm), self._writer)
        return self._background

    def _names(self) -> Iterator[Path]:
        """Names for the file: a script may train in several processes that are not ranks of one training."""
        rank, _ = rank_and_world()
        for name in (f"rank-{rank}", f"rank-{rank}.pid-{os.getpid()}"):
            yield self._orders.traces / f"{name}{SUFFIX}"
        for count in itertools.count(2):
            yield self._orders.traces / f"rank-{rank}.pid-{os.getpid()}-{count}{SUFFIX}"

    def _header(self) -> dict[str, Any]:
        rank, world = rank_and_world()
        header = {
            "run": self._orders.run,
            "driver": "script",
            "digest": self._algorithm,
            "rank": rank,
            "world_size": world,
            "pid": os.getpid(),
            "started": datetime.now(UTC).isoformat(timespec="microseconds"),
            "command": list(self._orders.command),
            "arguments": sys.argv,
            "python": platform.python_version(),
            "executable": sys.executable,
            "torch": torch.__version__,
            "platform": _platform(),
            "device": _device(),
            "flags": flags(),
            "every": self._orders.every,
        }
        if self._orders.only or not self._orders.grads:
            header |= {"only": list(self._orders.only), "grads": self._orders.grads}
        numpy = sys.modules.get("numpy")
        return header | ({"numpy": numpy.__version__} if numpy is not None else {})

    def close(self, facts: Mapping[str, Any], *, clean: bool) -> None:
        """Finish the file; `facts` are more for its header."""
        if self._background is not None and self._writer is not None and self._process == os.getpid():
            self._background.close()
            self._writer.set_header(facts)
            self._writer.close(clean)

    def break_off(self, facts: Mapping[str, Any]) -> None:
        """Finish the file as far as that can still be done, as one that has not come to its end."""
        background, writer = self._background, self._writer
        if background is None or writer is None or self._process != os.getpid():
            return
        for finish in (background.close, lambda: writer.set_header(facts), lambda: writer.close(clean=False)):
            with suppress(Exception):  # what went wrong has been said; no second trouble may hide it
                finish()


def _device() -> str:
    return "cuda" if torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _platform() -> str:
    """What `platform.platform()` says on Linux; that one starts a process, which a script might notice."""
    system = os.uname()
    libc = "".join(platform.libc_ver())
    return "-".join([system.sysname, system.release, system.machine, *(["with", libc] if libc else [])])

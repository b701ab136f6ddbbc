"""A trace file, read a moment at a time. Needs neither torch nor numpy."""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ckptcheck.errors import TraceError
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Scalar
from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.schema import APPLICATION_ID, SUFFIX, VERSION


class Trace:
    """A trace file, read. Moments are read one at a time, so memory does not grow with steps.

    Raises TraceError for a file that is no trace, holds no moment, is damaged, or has a newer schema than this
    version reads; damage may be found only when what it hit is read. `shift` is added to every step number: a resumed
    script counts from 1.
    """

    def __init__(self, path: Path, shift: int = 0) -> None:
        self.path = path
        self.shift = shift
        if not path.is_file():
            raise TraceError(f"no trace at {path}: give a folder that `resume -o` or `save --trace` wrote")
        if not path.stat().st_size:
            raise TraceError(f"the trace {path} is empty: the run ended before its first step; record it again")
        # Read-only where possible; a write-ahead log that a killed run left behind is read along with it.
        with self._trouble():
            self._base = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
        try:
            with self._trouble():
                self._open()
        except TraceError:
            self._base.close()
            raise

    def _open(self) -> None:
        marks = [self._base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if marks[0] != APPLICATION_ID:
            raise TraceError(f"{self.path} is an SQLite file but no trace; give a folder that ckptcheck recorded")
        if marks[1] > VERSION:
            said = f"{self.path} has trace schema {marks[1]}, this version reads up to {VERSION}"
            raise TraceError(f"{said}: install a newer ckptcheck")
        self.header: dict[str, Any] = {
            name: json.loads(value) for name, value in self._base.execute("SELECT name, value FROM header")
        }
        if "digest" not in self.header:
            raise ValueError("its header names no digest algorithm")
        self._tensors: dict[int, tuple[Item, TensorSpec | None]] = {}
        self._places: dict[Item, list[int]] = {}
        for number, *item, dtype, shape in self._base.execute("SELECT * FROM tensors"):
            spec = TensorSpec(dtype, tuple(json.loads(shape))) if dtype is not None else None
            self._tensors[number] = (Item(*item), spec)
            self._places.setdefault(Item(*item), []).append(number)
        self.moments: dict[tuple[int, str], int] = {
            (step + self.shift, moment): number
            for number, step, moment in self._base.execute("SELECT * FROM steps ORDER BY id")
        }
        if not self.moments:
            raise TraceError(f"the trace {self.path} holds no step: the run ended before its first; record it again")

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError, LookupError) as error:
            raise TraceError(f"{self.path} cannot be read as a trace ({error}); record it again") from error

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._trouble():
            return self._base.execute(query, values).fetchall()

    def shifted(self, by: int) -> "Trace":
        """The same file opened once more, with its steps counted from `by` + 1."""
        return Trace(self.path, by)

    @property
    def steps(self) -> list[int]:
        """The steps that were recorded whole, ascending."""
        return sorted({step for step, moment in self.moments if moment == "step"})

    @property
    def ended(self) -> bool:
        """Whether the run came to its end; a killed one did not."""
        return self.header.get("ended") == "clean"

    def samples(self, step: int, moment: str) -> dict[Item, Sample]:
        """Every sample of one moment; empty where there was no such moment."""
        number = self.moments.get((step, moment))
        query = "SELECT what, digest, presence, norm, value FROM records WHERE at = ? ORDER BY what"
        samples = {}
        for what, digest, presence, norm, value in self._rows(query, number):
            with self._trouble():
                item, spec = self._tensors[what]
                samples[item] = Sample(spec, digest, presence, _norm(norm), _value(value, spec))
        return samples

    def tensors(self) -> Iterable[tuple[Item, TensorSpec | None]]:
        """Everything that the trace has records of."""
        return self._tensors.values()

    def digest(self, step: int, moment: str, item: Item) -> bytes | None:
        """The digest of one item at one moment; None where there is none."""
        number = self.moments.get((step, moment))
        for what in self._places.get(item, ()):
            row = self._rows("SELECT digest FROM records WHERE at = ? AND what = ?", number, what)
            if row:
                return row[0][0]  # type: ignore[no-any-return]
        return None

    def digests(self, item: Item, moment: str = "step") -> Iterator[tuple[int, bytes]]:
        """Yield (step, digest) of one item over all steps, ascending; steps without it are left out."""
        for (step, found), _ in sorted(self.moments.items()):
            if found == moment and (digest := self.digest(step, moment, item)) is not None:
                yield step, digest

    def text(self, digest: bytes | None) -> str | None:
        """The text behind a structure's digest."""
        row = self._rows("SELECT text FROM texts WHERE digest = ?", digest)
        return row[0][0] if row else None

    def close(self) -> None:
        """Close the file."""
        self._base.close()


def _norm(stored: Any) -> float | None:
    return None if stored is None else float(stored)


def _value(stored: Any, spec: TensorSpec | None) -> Scalar | None:
    if isinstance(stored, bytes):
        return stored != b"\0"
    return math.nan if stored == "nan" and spec is not None else stored


def open_traces(path: Path) -> list[Trace]:
    """The traces of a folder, by file name (one a process), or the one trace of a file.

    Raises TraceError where there is none.
    """
    if not path.exists():
        raise TraceError(f"no trace at {path}: there is no such file or folder")
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    if not files:
        raise TraceError(f"no trace in {path}: a trace folder holds files named *{SUFFIX}; was the run recorded?")
    return [Trace(file) for file in files]

"""A trace file, read a moment at a time. Needs neither torch nor numpy."""

import json
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ckptcheck.errors import TraceError
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Scalar
from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.schema import APPLICATION_ID, SUFFIX, VERSION

NO_DIGEST: Final = bytes.fromhex("b1f3c5d70a8e4962913d5b7f2c6e80a4")
"""Stands for an absent digest in `Trace.columns`; a digest is as unlikely to be this one as any other."""
CONTENT_BYTES: Final = 17
"""Bytes of `Trace.columns` a row."""
FEW: Final = 8
"""Up to one in so many items of a trace are looked up one by one; of more, a whole moment is read."""

_OUT_OF_REACH: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
"""What SQLite says where somebody writes, or where nobody may."""

# A norm is NaN as a text. It is infinite too where the squares of large finite numbers overflow, as second moments do.
_NOT_FINITE: Final = """
    FROM steps CROSS JOIN records ON records.at = steps.id
    WHERE moment = 'step' AND step BETWEEN ? AND ?
    AND (typeof(norm) = 'text' OR (norm = 9e999 AND what NOT IN (SELECT id FROM tensors WHERE kind = 'state'))
         OR value IN (9e999, -9e999, 'nan', 'inf', '-inf') OR value GLOB 'nan:*')"""


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
            raise TraceError(f"no trace at {path}: give a folder that `record -o`, `resume -o` or `save --trace` wrote")
        if not path.stat().st_size:
            raise TraceError(f"the trace {path} is empty: the run ended before its first step; record it again")
        # Read-only where possible; a write-ahead log that a killed run left behind is read along with it.
        with self._trouble():
            self._base = _connected(path)
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
        self._places: dict[Item, tuple[int, ...]] = {}
        specs: dict[tuple[str, str], TensorSpec] = {}
        for number, *named, dtype, shape in self._base.execute("SELECT * FROM tensors"):
            spec = specs.get((dtype, shape)) if dtype is not None else None
            if dtype is not None and spec is None:
                spec = specs[dtype, shape] = TensorSpec(dtype, tuple(json.loads(shape)))
            item = Item(*named)
            self._tensors[number] = (item, spec)
            self._places[item] = (*self._places.get(item, ()), number)
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
                samples[item] = self._sample(spec, digest, presence, norm, value)
        return samples

    @staticmethod
    def _sample(spec: TensorSpec | None, digest: Any, presence: Any, norm: Any, value: Any) -> Sample:
        return Sample(spec, digest, presence, _norm(norm), _value(value, spec))

    def columns(self, step: int, moment: str) -> tuple[str, bytes]:
        """One moment without an object a row: numbers of its items in `table`, and what each one holds.

        The numbers come as text, with commas; the content has `CONTENT_BYTES` a row in the same order: the digest, or
        `NO_DIGEST`, and one character for gradient presence.
        """
        number = self.moments.get((step, moment))
        query = """
            SELECT group_concat(what), CAST(group_concat(ifnull(digest, ?) || ifnull(presence, '-'), '') AS BLOB),
                   count(*), total(length(digest) <> 16 OR length(presence) <> 1)
            FROM records WHERE at = ?"""
        ((whats, contents, count, odd),) = self._rows(query, NO_DIGEST, number)
        if odd or len(contents or b"") != count * CONTENT_BYTES:
            raise TraceError(f"{self.path} cannot be read as a trace (a digest is not 16 bytes long); record it again")
        return whats or "", contents or b""

    def presences(self, step: int, moment: str) -> list[tuple[int, int]]:
        """The number in `table` and the presence of each gradient of one moment."""
        number = self.moments.get((step, moment))
        return self._rows("SELECT what, presence FROM records WHERE at = ? AND presence IS NOT NULL", number)

    def picked(self, step: int, moment: str, whats: Sequence[int]) -> dict[int, Sample]:
        """The samples of some items of one moment, by their numbers in `table`."""
        number = self.moments.get((step, moment))
        query = "SELECT what, digest, presence, norm, value FROM records WHERE at = ?"
        if len(whats) * FEW > len(self._tensors):
            wanted = set(whats)
            rows = [row for row in self._rows(query, number) if row[0] in wanted]
        else:
            rows = [row for what in whats for row in self._rows(f"{query} AND what = ?", number, what)]
        with self._trouble():
            return {what: self._sample(self._tensors[what][1], *row) for what, *row in rows}

    @property
    def table(self) -> Mapping[int, tuple[Item, TensorSpec | None]]:
        """Everything that the trace has records of, by number."""
        return self._tensors

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

    def sample(self, step: int, moment: str, item: Item) -> Sample | None:
        """One item at one moment; None where there is none."""
        number = self.moments.get((step, moment))
        query = "SELECT digest, presence, norm, value FROM records WHERE at = ? AND what = ?"
        for what in self._places.get(item, ()):
            for row in self._rows(query, number, what):
                return self._sample(self._tensors[what][1], *row)
        return None

    def digests(self, item: Item, moment: str = "step") -> Iterator[tuple[int, bytes]]:
        """Yield (step, digest) of one item over all steps, ascending; steps without it are left out."""
        for (step, found), _ in sorted(self.moments.items()):
            if found == moment and (digest := self.digest(step, moment, item)) is not None:
                yield step, digest

    def not_finite(self, kinds: Collection[str], first: int, last: int) -> dict[Item, tuple[int, int]]:
        """Each item of these kinds that held NaN or infinity after steps from `first` to `last`.

        With the first such step, and how many there are. A state of several elements is told by its NaN alone.
        """
        query = f"SELECT what, min(step), count(*) {_NOT_FINITE} GROUP BY what"
        found: dict[Item, tuple[int, int]] = {}
        for what, step, count in self._rows(query, first - self.shift, last - self.shift):
            item = self._tensors[what][0]
            if item.kind in kinds:
                earlier, before = found.get(item, (step + self.shift, 0))
                found[item] = min(earlier, step + self.shift), before + count
        return found

    def not_finite_steps(self, kind: str, first: int, last: int) -> set[int]:
        """The steps from `first` to `last` after which any item of a kind held NaN or infinity."""
        whats = [str(number) for number, (item, _) in self._tensors.items() if item.kind == kind]
        query = f"SELECT DISTINCT step {_NOT_FINITE} AND what IN ({','.join(whats)})"
        return {step + self.shift for (step,) in self._rows(query, first - self.shift, last - self.shift)}

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


def _connected(path: Path) -> sqlite3.Connection:
    """A trace that is still being written, or was left behind in a folder that is read-only, is read from a copy."""
    base = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True, timeout=0)
    log = path.with_name(f"{path.name}-wal")
    try:
        base.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError as error:
        base.close()
        if error.sqlite_errorcode & 0xFF not in _OUT_OF_REACH or not log.is_file():
            raise
        with tempfile.TemporaryDirectory() as folder:  # it is deleted while it is open, and gone when it is closed
            for one in (path, log):
                shutil.copyfile(one, Path(folder, one.name))
            base = sqlite3.connect(Path(folder, path.name), isolation_level=None)
            base.execute("PRAGMA journal_mode = DELETE")
    return base


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

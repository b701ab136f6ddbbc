"""The trace file: SQLite, one self-contained file a process, written a moment at a time.

Schema history
  1  first version: header, tensors, steps, texts, records

header   name, value          versions, devices, digest algorithm, command, rank; "ended" is "clean" at a clean end
tensors  id, kind, name, key, optimizer, grp, part, dtype, shape   what a record is of; an item whose dtype or shape
                              changes has several rows; dtype NULL is a plain value
steps    id, step, moment     one row a moment, in the order in which they came
texts    digest, text         long texts by content
records  at (steps.id), what (tensors.id), digest, presence, norm, value     no other index

SQLite has neither booleans nor NaN: a boolean value is a blob of one byte, a NaN norm or tensor value the text
"nan". Text that is no valid Unicode has backslash escapes in its place.
"""

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ckptcheck.errors import OutputError, TraceError
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Scalar
from ckptcheck.trace.items import Item, Sample

VERSION: Final = 1
APPLICATION_ID: Final = 0x636B7074
"""Marks the SQLite file as a trace ("ckpt")."""
SUFFIX: Final = ".trace"
MAX_TEXT: Final = 120
"""Longer texts of plain values are cut in a record; their digest covers the whole."""

_SCHEMA = """
CREATE TABLE header (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE tensors (id INTEGER PRIMARY KEY, kind TEXT, name TEXT, key TEXT, optimizer INTEGER, grp INTEGER,
                      part INTEGER, dtype TEXT, shape TEXT);
CREATE TABLE steps (id INTEGER PRIMARY KEY, step INTEGER, moment TEXT);
CREATE TABLE texts (digest BLOB PRIMARY KEY, text TEXT) WITHOUT ROWID;
CREATE TABLE records (at INTEGER, what INTEGER, digest BLOB, presence INTEGER, norm REAL, value,
                      PRIMARY KEY (at, what)) WITHOUT ROWID;
"""


class TraceWriter:
    """Writes one trace file. Each moment is one transaction, so a killed process leaves whole moments only.

    Raises OutputError when the file cannot be made or written (a full disk, a folder that is read-only).
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path = path
        self._process = os.getpid()
        self._ids: dict[tuple[Item, TensorSpec | None], int] = {}
        self._moments = 0
        with self._trouble():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.touch(exist_ok=False)
            except FileExistsError:
                said = f"{path} exists already: a trace is never written over; name another folder"
                raise OutputError(said) from None
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            # A write-ahead log is what survives SIGKILL without a sync a step; it is folded in at the end.
            self._base.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._base.execute(f"PRAGMA user_version = {VERSION}")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = OFF")
            self._base.executescript(_SCHEMA)
            self.set_header(header)

    def set_header(self, header: Mapping[str, Any]) -> None:
        """Add or replace header values; they are kept as JSON."""
        rows = [(name, json.dumps(value)) for name, value in header.items()]
        with self._trouble():
            self._base.executemany("INSERT OR REPLACE INTO header VALUES (?, ?)", rows)

    def write(self, step: int, moment: str, samples: Iterable[tuple[Item, Sample]]) -> None:
        """Write everything that was sampled at one moment of one step, at once. A later sample of an item wins."""
        if os.getpid() != self._process:
            return  # what the user's code forks is not the run, and may not touch the file
        known = len(self._ids)
        try:
            with self._trouble():
                self._base.execute("BEGIN")
                self._base.execute("INSERT INTO steps VALUES (?, ?, ?)", (self._moments, step, moment))
                rows = [self._row(item, sample) for item, sample in dict(samples).items()]
                self._base.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
                self._base.execute("COMMIT")
        except BaseException:
            self._take_back(known)
            raise
        self._moments += 1

    def _take_back(self, known: int) -> None:
        """Undo a moment that was not written whole, so that a next one can be written."""
        self._ids = dict(islice(self._ids.items(), known))
        if self._base.in_transaction:
            with suppress(sqlite3.Error):
                self._base.execute("ROLLBACK")

    def _row(self, item: Item, sample: Sample) -> tuple[Any, ...]:
        value: Any = sample.value
        if item.kind == "structure":
            self._base.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (sample.digest, value))
            value = None
        elif isinstance(value, str):
            value = _valid(value[:MAX_TEXT])
        elif isinstance(value, bool):
            value = bytes([value])
        what = self._id(item, sample.spec)
        return self._moments, what, sample.digest, sample.presence, _storable(sample.norm), _storable(value)

    def _id(self, item: Item, spec: TensorSpec | None) -> int:
        known = self._ids.get((item, spec))
        if known is None:
            known = self._ids[item, spec] = len(self._ids)
            dtype, shape = (spec.dtype, json.dumps(spec.shape)) if spec else (None, None)
            named = item._replace(name=_valid(item.name), key=_valid(item.key))
            self._base.execute("INSERT INTO tensors VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (known, *named, dtype, shape))
        return known

    def close(self, clean: bool) -> None:
        """End the trace; `clean` marks that the run came to its end. The file is then self-contained."""
        if os.getpid() != self._process:
            return
        try:
            if clean:
                self.set_header({"ended": "clean"})
            with self._trouble():
                self._base.execute("PRAGMA journal_mode = DELETE")
        finally:
            with self._trouble():
                self._base.close()

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise OutputError(f"the trace {self._path} cannot be written ({error}); name a folder with room") from error


def _valid(text: str) -> str:
    """The text without lone surrogates, which SQLite refuses; names of files may hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _storable(number: Any) -> Any:
    return "nan" if isinstance(number, float) and math.isnan(number) else number


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
            (step + self.shift, moment): number for number, step, moment in self._base.execute("SELECT * FROM steps ORDER BY id")
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


def trace_file(folder: Path, rank: int = 0) -> Path:
    """The trace file of one rank in a trace folder."""
    return folder / f"rank-{rank}{SUFFIX}"


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

"""The trace file, written a moment at a time; `Trace` reads it."""

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from ckptcheck.errors import OutputError
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.trace.descriptors import Descriptors, keep_for_ever
from ckptcheck.trace.items import Item, Sample
from ckptcheck.trace.reading import Trace, open_traces
from ckptcheck.trace.schema import APPLICATION_ID, MAX_TEXT, SCHEMA, SUFFIX, VERSION

__all__ = ["MAX_TEXT", "SUFFIX", "VERSION", "Trace", "TraceWriter", "open_traces", "trace_file"]

_ROWS_AT_ONCE: Final = 100
"""Rows of one statement: within the least number of values (999) that SQLite takes."""


class TraceWriter:
    """Writes one trace file. Each moment is one transaction, so a killed process leaves whole moments only.

    Raises OutputError when the file cannot be made or written (a full disk, a folder that is read-only).
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self._path = path
        self._process = os.getpid()
        self._ids: dict[tuple[Item, TensorSpec | None], int] = {}
        self._latest: dict[Item, tuple[TensorSpec | None, int]] = {}
        self._texts: set[bytes | None] = set()
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
            # Nobody else reads meanwhile; a part of the log would else be mapped, and kill who writes where a script
            # cuts the file.
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = OFF")
            self._base.executescript(SCHEMA)
            self._descriptors = Descriptors(path, path.with_name(f"{path.name}-wal"))
            self.set_header(header)

    def set_header(self, header: Mapping[str, Any]) -> None:
        """Add or replace header values; they are kept as JSON."""
        rows = [(name, json.dumps(value)) for name, value in header.items()]
        with self._trouble():
            self._look()
            self._base.executemany("INSERT OR REPLACE INTO header VALUES (?, ?)", rows)

    def write(self, step: int, moment: str, samples: Iterable[tuple[Item, Sample]]) -> None:
        """Write everything that was sampled at one moment of one step, at once. A later sample of an item wins."""
        if os.getpid() != self._process:
            return  # what the user's code forks is not the run, and may not touch the file
        known = len(self._ids)
        try:
            with self._trouble():
                self._look()
                self._base.execute("BEGIN")
                self._base.execute("INSERT INTO steps VALUES (?, ?, ?)", (self._moments, step, moment))
                self._insert([self._row(item, sample) for item, sample in dict(samples).items()])
                self._base.execute("COMMIT")
        except BaseException:
            self._take_back(known)
            raise
        self._moments += 1

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        # Rows that come in their order fill the pages of the file; and python's lock is let go of once for all rows
        # of a statement, where another thread, which trains, would have to wait for it again and again.
        rows.sort(key=itemgetter(1))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            places = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(some))
            self._base.execute(f"INSERT INTO records VALUES {places}", list(chain.from_iterable(some)))

    def _take_back(self, known: int) -> None:
        """Undo a moment that was not written whole, so that a next one can be written."""
        self._ids = dict(islice(self._ids.items(), known))
        self._latest.clear()
        self._texts.clear()
        with suppress(sqlite3.Error):
            if not self._descriptors.lost and self._base.in_transaction:
                self._base.execute("ROLLBACK")

    def _row(self, item: Item, sample: Sample) -> tuple[Any, ...]:
        value: Any = sample.value
        if item.kind == "structure":
            if sample.digest not in self._texts:
                self._base.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (sample.digest, value))
                self._texts.add(sample.digest)
            value = None
        elif isinstance(value, str):
            value = _valid(value[:MAX_TEXT])
        elif isinstance(value, bool):
            value = bytes([value])
        latest = self._latest.get(item)
        if latest is None or latest[0] is not sample.spec:
            latest = self._latest[item] = (sample.spec, self._id(item, sample.spec))
        return self._moments, latest[1], sample.digest, sample.presence, _storable(sample.norm), _storable(value)

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
        if os.getpid() != self._process or self._descriptors.lost:
            return
        try:
            if clean:
                self.set_header({"ended": "clean"})
            with self._trouble():
                self._fold_in()
        finally:
            if not self._descriptors.lost:
                with self._trouble():
                    self._base.close()

    def _look(self) -> None:
        """Raise OSError where the files are not open any more: what is open under their numbers may be the script's.

        Nothing is closed then, now or when the process ends.
        """
        if self._descriptors.are_ours():
            return
        if not self._descriptors.lost:
            self._descriptors.lost = True
            keep_for_ever(self._base)
        raise OSError("its file was closed by the script")

    def _fold_in(self) -> None:
        try:
            self._base.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            # Somebody reads the trace, and so keeps the log in its place: the trace is whole with it.

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


def trace_file(folder: Path, rank: int = 0) -> Path:
    """The trace file of one rank in a trace folder."""
    return folder / f"rank-{rank}{SUFFIX}"

"""Every file operation of a save, written down; stopped at any of them; and what a power cut would leave.

Shares no code with the store: it patches the calls of `os` through which files change.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

CHANGING = ("open", "write", "fsync", "replace", "unlink", "mkdir")


class Crash(BaseException):
    """The process is dead: nothing that it still does reaches the disk."""


@dataclass
class Journal:
    """What was done, as (operation, file name, bytes or second name); stops where it is told to.

    `stop_at` is the number of the operation that does not happen, or with `torn` happens by half; after it
    nothing else does, unless `trouble` is an ordinary error that the save may clean up after.
    """

    stop_at: int | None = None
    torn: bool = False
    trouble: BaseException = field(default_factory=Crash)
    done: list[tuple[str, str, Any]] = field(default_factory=list)
    stopped: bool = False
    _names: dict[int, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def recording(self) -> Iterator["Journal"]:
        with contextlib.ExitStack() as stack:
            for name in CHANGING:
                stack.enter_context(mock.patch.object(os, name, self._around(name, getattr(os, name))))
            yield self

    def _around(self, name: str, original: Any) -> Any:
        def call(first: Any, *rest: Any, **named: Any) -> Any:
            if name == "open" and not rest[0] & os.O_CREAT:
                descriptor = original(first, *rest, **named)
                self._names[descriptor] = str(first)
                return descriptor
            if self.stopped and isinstance(self.trouble, Crash):
                raise self.trouble
            if self.stop_at == len(self.done) and not self.stopped:
                self.stopped = True
                if self.torn and name == "write":
                    original(first, bytes(rest[0])[: len(rest[0]) // 2])
                raise self.trouble
            result = original(first, *rest, **named)
            self._note(name, first, rest, result)
            return result

        return call

    def _note(self, name: str, first: Any, rest: tuple[Any, ...], result: Any) -> None:
        if name == "open":
            self._names[result] = str(first)
        path = self._names[first] if name in ("write", "fsync") else str(first)
        more = bytes(rest[0][:result]) if name == "write" else str(rest[0]) if name == "replace" else None
        self.done.append((name, path, more))


def after_power_cut(done: list[tuple[str, str, Any]], folder: Path, before: dict[str, bytes]) -> set[frozenset[Any]]:
    """Every content of the folder that a power cut may leave, at any moment and whatever was not synced.

    The model is POSIX's: a file has its content for sure once it was synced, else it may be empty; an entry is
    made, renamed or deleted for sure once the folder was synced, else perhaps, in any order.
    """
    states: set[frozenset[Any]] = set()
    entries = dict(before)
    live, synced, pending = dict(before), dict(before), []
    for name, path, more in done:
        own = Path(path).name
        if name == "open":
            live[own], synced[own] = b"", b""
            pending.append(("make", own, None))
        elif name == "write":
            live[own] += more
        elif name == "fsync" and Path(path) == folder:
            entries, pending = _applied(entries, pending, synced), []
        elif name == "fsync":
            synced[own] = live.get(own, b"")
        elif name == "replace":
            new = Path(more).name
            live[new], synced[new] = live.pop(own), synced[own]
            pending.append(("move", own, new))
        elif name == "unlink":
            pending.append(("delete", own, None))
        for size in range(len(pending) + 1):
            for some in itertools.combinations(pending, size):
                states.add(frozenset(_applied(entries, list(some), synced).items()))
    return states


def _applied(entries: dict[str, bytes], pending: list[Any], synced: dict[str, bytes]) -> dict[str, bytes]:
    found = {name: synced.get(name, content) if name in synced else content for name, content in entries.items()}
    for kind, name, new in pending:
        if kind == "make":
            found[name] = synced[name]
        elif kind == "move":
            found.pop(name, None)
            found[new] = synced[name]
        else:
            found.pop(name, None)
    return found

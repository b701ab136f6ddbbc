"""Findings that were there already: a file of their fingerprints, against which only what is new gates.

A finding stands at the first of several parameters; the others that it names are in its fingerprint too, so that one
more of them is news, and one less is none.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from ckptcheck.errors import OutputError, UsageError
from ckptcheck.finding import Finding, Json
from ckptcheck.verdict.named import things_of

SCHEMA: Final = 1
"""Version of the layout of the file."""
MAX_BYTES: Final = 64 << 20
"""A file that is larger is no baseline."""


class Fingerprint(NamedTuple):
    """What is the same of a finding in every run: no step, no path and no number, which change as training goes on."""

    code: str
    parameter: str | None = None
    key: str | None = None
    optimizer: int | None = None
    group: int | None = None
    rank: int | None = None
    stage: str | None = None
    others: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, Json]:
        """What is written of it: only what applies."""
        told = {name: value for name, value in self._asdict().items() if value is not None and name != "others"}
        return told | ({"others": [*self.others]} if self.others else {})

    def covers(self, now: "Fingerprint") -> bool:
        """Whether a finding is this one, or a part of it: it names nothing that this one does not name."""
        if (self.code, self.optimizer, self.rank, self.stage) != (now.code, now.optimizer, now.rank, now.stage):
            return False
        same_place = self.parameter == now.parameter
        if same_place and (self.key, self.group) != (now.key, now.group):
            return False
        return (same_place or now.parameter in self.others) and {*now.others} <= {*self.others}


_TEXTS: Final = ("code", "parameter", "key", "stage")


def fingerprint(finding: Finding) -> Fingerprint:
    """The fingerprint of a finding."""
    where = finding.where
    return Fingerprint(
        finding.code, where.parameter, where.key, where.optimizer, where.group, where.rank, where.stage,
        things_of(finding),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings of an earlier run of a command, each with how often it was found in one step."""

    path: Path
    found: Counter[Fingerprint]

    def like(self, now: Fingerprint) -> list[Fingerprint]:
        """The entries that cover a finding, the very same one first."""
        covering = [one for one in self.found if one.code == now.code and one.covers(now)]
        return sorted(covering, key=lambda one: one != now)


def read_baseline(path: Path, command: str) -> Baseline:
    """Read a baseline that the same command has written. UsageError, in one line, for anything else."""
    whole = _told(path)
    version = whole.get("baseline")
    if isinstance(version, bool) or not isinstance(version, int):
        raise _no_baseline(path, "it is a result" if "verdict" in whole else "it has no key 'baseline'")
    if version > SCHEMA:
        raise UsageError(f"--baseline {path}: it has version {version}, and this ckptcheck reads {SCHEMA}: upgrade")
    if whole.get("command") != command:
        raise UsageError(f"--baseline {path}: it is one of {str(whole.get('command'))[:20]!r}, and this is {command}")
    rows = whole.get("findings")
    if version != SCHEMA or not isinstance(rows, list):
        raise _no_baseline(path, "it has no list 'findings'")
    found: Counter[Fingerprint] = Counter()
    for place, row in enumerate(rows):
        if not _is_row(row):
            raise _no_baseline(path, f"entry {place} of its findings is no fingerprint")
        told = {name: value for name, value in row.items() if name not in ("count", "others")}
        found[Fingerprint(**told, others=tuple(row.get("others", ())))] += row.get("count", 1)
    return Baseline(path, found)


def _told(path: Path) -> dict[str, Any]:
    """The object that a file holds. UsageError where it holds none."""
    try:
        if not path.is_file():
            raise UsageError(f"--baseline {path}: {'it is no file' if path.exists() else 'there is no such file'}")
        if path.stat().st_size > MAX_BYTES:
            raise _no_baseline(path, f"it has more than {MAX_BYTES >> 20} MiB")
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--baseline {path}: cannot read it: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise _no_baseline(path, "it is no JSON") from None
    if not isinstance(told, dict):
        raise _no_baseline(path, "it is no object")
    return told


def _no_baseline(path: Path, why: str) -> UsageError:
    return UsageError(f"--baseline {path}: this is no baseline: {why}; write one with --write-baseline")


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or "code" not in row or not {*row} <= {*Fingerprint._fields, "count"}:
        return False
    others = row.get("others", [])
    if not isinstance(others, list) or not all(isinstance(one, str) for one in others):
        return False
    numbers = (value for name, value in row.items() if name not in (*_TEXTS, "others"))
    return all(isinstance(row[name], str) for name in _TEXTS if name in row) and all(
        isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in numbers
    )


def counted(findings: Iterable[Finding]) -> Counter[Fingerprint]:
    """How often each fingerprint is found in one step: what several resume points show is one finding."""
    each = Counter((fingerprint(one), one.where.step) for one in findings)
    most: Counter[Fingerprint] = Counter()
    for (one, _), count in each.items():
        most[one] = max(most[one], count)
    return most


def write_baseline(path: Path, command: str, findings: Iterable[Finding]) -> int:
    """Write the fingerprints of findings, sorted, the whole file or nothing; how many findings these are.

    Raises OutputError where it cannot be written.
    """
    found = counted(findings)
    rows = [{**one.row, **({"count": count} if count > 1 else {})} for one, count in found.items()]
    lines = sorted(json.dumps(row, sort_keys=False) for row in rows)
    listed = "".join(f"\n    {line}{',' if place < len(lines) else ''}" for place, line in enumerate(lines, 1))
    text = f'{{\n  "baseline": {SCHEMA},\n  "command": {json.dumps(command)},\n  "findings": [{listed}'
    _replace(path, text + ("\n  ]\n}\n" if lines else "]\n}\n"))
    return found.total()


def _replace(path: Path, text: str) -> None:
    path = path.resolve()  # a link stays, what it leads to is replaced
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe
            path.write_text(text, encoding="ascii")
            return
        try:
            with temporary.open("x", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(f"cannot write the baseline {path}: {error.strerror or error}") from error

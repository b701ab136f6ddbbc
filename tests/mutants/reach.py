"""Which tests run which statements of the package, measured once in a copy and kept."""

import bisect
import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.copying import PACKAGE, compile_package
from tests.mutants.forking import Server
from tests.mutants.seen import instrument

ROOMS = ("comparison", "rules", "experiment", "verdict")
"""Rooms whose statements are marked, and whose mutants can be run."""
TESTS = (
    "tests/comparison", "tests/rules", "tests/verdict", "tests/experiment", "tests/check_cases", "tests/cli",
    "tests/test_same_content.py", "tests/trace/script",
)  # fmt: skip
"""Tests that can kill a mutant of those rooms, those near to them first."""
LONGEST_FILE_S = 300.0


@dataclass(frozen=True, slots=True)
class Test:
    """One test that passes without a mutant."""

    name: str
    seconds: float

    @property
    def file(self) -> str:
        """The file that it stands in."""
        return self.name.partition("::")[0]


class Reach:
    """Looks up the tests that run a line."""

    def __init__(self, statements: list[tuple[str, int, int]], tests: list[Test], seen: list[list[int]]) -> None:
        self.tests = tests
        self._of: dict[int, list[int]] = {}
        for place, marks in enumerate(seen):
            for mark in marks:
                self._of.setdefault(mark, []).append(place)
        self._spans: dict[str, list[tuple[int, int, int]]] = {}
        for number, (path, first, last) in enumerate(statements):
            self._spans.setdefault(path, []).append((first, last, number))
        for spans in self._spans.values():
            spans.sort()

    def running(self, path: str, lines: Iterable[int]) -> list[Test]:
        """The tests that run one of the lines; those that run anything of the file for a line outside of functions."""
        places: set[int] = set()
        for line in lines:
            number = self._innermost(path, line)
            numbers = [number] if number is not None else [one for _, _, one in self._spans.get(path, [])]
            places.update(place for one in numbers for place in self._of.get(one, ()))
        return [self.tests[place] for place in sorted(places)]

    def _innermost(self, path: str, line: int) -> int | None:
        spans = self._spans.get(path, [])
        before = spans[: bisect.bisect_right(spans, (line, sys.maxsize, 0))]
        around = [(last - first, number) for first, last, number in before if last >= line]
        return min(around)[1] if around else None


def measured(pristine: Path, work: Path, only: tuple[str, ...] = ()) -> Reach:
    """The map of a copy, from the folder's cache if it was measured before."""
    kept = work / "reach.json"
    if not kept.exists():
        kept.write_text(json.dumps(_measure(pristine, work, only or TESTS)))
    read = json.loads(kept.read_text())
    tests = [Test(name, seconds) for name, seconds, _ in read["tests"]]
    return Reach([tuple(one) for one in read["statements"]], tests, [seen for _, _, seen in read["tests"]])


def _measure(pristine: Path, work: Path, roots: tuple[str, ...]) -> dict[str, object]:
    root = work / "marked"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(pristine, root)
    statements = instrument(root / PACKAGE, ROOMS)
    compile_package(root)
    marks, out = work / "marks", work / "found.json"
    marks.write_bytes(bytes(len(statements) + 1))
    server = Server(root, writing=True)
    tests = []
    for file in _files(root, roots):
        out.unlink(missing_ok=True)
        outcome = server.run([file], None, LONGEST_FILE_S, {"marks": str(marks), "out": str(out)})
        found = json.loads(out.read_text()) if out.exists() else {}
        passed = {name: one for name, one in found.items() if one["passed"]}
        tests += [(name, one["seconds"], one["seen"]) for name, one in passed.items()]
        told = f"{file}: {len(passed)} of {len(found)} tests in {outcome.seconds:.1f} s, code {outcome.code}"
        print(told, file=sys.stderr, flush=True)
        if not outcome.passed:
            print(outcome.log[-600:], file=sys.stderr, flush=True)
    server.close()
    return {"statements": statements, "tests": tests}


def _files(root: Path, roots: tuple[str, ...]) -> list[str]:
    files: list[Path] = []
    for one in roots:
        path = root / one
        files += [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return [str(path.relative_to(root)) for path in files]

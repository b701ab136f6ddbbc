"""Which tests run which statements of the package, measured once in a copy and kept."""

import ast
import bisect
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from tests.mutants.copying import PACKAGE, compile_package
from tests.mutants.forking import Server
from tests.mutants.seen import instrument

ROOMS = ("comparison", "rules", "experiment", "verdict")
"""Rooms whose statements are marked, and whose mutants can be run."""
TESTS = (
    "tests/comparison", "tests/rules", "tests/verdict", "tests/experiment", "tests/check_cases", "tests/cli",
    "tests/test_same_content.py", "tests/catalogue",
)  # fmt: skip
"""Tests that can kill a mutant of those rooms, those near to them first."""
LONGEST_FILE_S = 300.0


@dataclass(frozen=True, slots=True)
class Timed:
    """One test that passes without a mutant."""

    name: str
    seconds: float

    @property
    def file(self) -> str:
        """The file that it stands in."""
        return self.name.partition("::")[0]


class Reach:
    """Looks up the tests that run a line."""

    def __init__(
        self,
        statements: list[tuple[str, int, int]],
        tests: list[Timed],
        seen: list[list[int]],
        importers: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self.tests = tests
        self._importers = importers
        self._of: dict[int, list[int]] = {}
        for place, marks in enumerate(seen):
            for mark in marks:
                self._of.setdefault(mark, []).append(place)
        self._spans: dict[str, list[tuple[int, int, int]]] = {}
        for number, (path, first, last) in enumerate(statements):
            self._spans.setdefault(path, []).append((first, last, number))
        for spans in self._spans.values():
            spans.sort()

    def running(self, path: str, lines: Iterable[int]) -> list[Timed]:
        """The tests that run one of the lines.

        For a line outside of functions, those that run anything of the file, or of a file that imports it.
        """
        places: set[int] = set()
        for line in lines:
            number = self._innermost(path, line)
            files = (path, *self._importers.get(path, ())) if number is None else ()
            numbers = [one for file in files for _, _, one in self._spans.get(file, [])] if number is None else [number]
            places.update(place for one in numbers for place in self._of.get(one, ()))
        return [self.tests[place] for place in sorted(places)]

    def _innermost(self, path: str, line: int) -> int | None:
        spans = self._spans.get(path, [])
        before = spans[: bisect.bisect_right(spans, (line, sys.maxsize, 0))]
        around = [(last - first, number) for first, last, number in before if last >= line]
        return min(around)[1] if around else None


def measured(pristine: Path, work: Path) -> Reach:
    """The map of a copy. What was measured before is kept while the package and the file of tests are the same."""
    kept = work / "reach.jsonl"
    package = _digest_of(pristine / PACKAGE)
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    if not lines or lines[0]["package"] != package:
        statements = _mark(pristine, work / "marked")
        lines = [{"package": package, "statements": statements}]
        kept.write_text(json.dumps(lines[0]) + "\n")
    known = {(one["file"], one["digest"]): one["tests"] for one in lines[1:]}
    files = {file: _digest_of(pristine / file) for file in _files(pristine, TESTS)}
    missing = {file: digest for file, digest in files.items() if (file, digest) not in known}
    if missing:
        shutil.copytree(pristine / "tests", work / "marked" / "tests", dirs_exist_ok=True)
        with kept.open("a") as out:
            for file, tests in _measure(work, len(lines[0]["statements"]), list(missing)):
                known[file, missing[file]] = tests
                out.write(json.dumps({"file": file, "digest": missing[file], "tests": tests}) + "\n")
                out.flush()
    rows = [row for key in files.items() for row in known[key]]
    tests = [Timed(name, seconds) for name, seconds, _ in rows]
    statements = [tuple(one) for one in lines[0]["statements"]]
    return Reach(statements, tests, [seen for _, _, seen in rows], importers(pristine))


def importers(root: Path) -> dict[str, list[str]]:
    """For each file of the package the files that import something from it."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
                for name in names:
                    found.setdefault(f"{name.replace('.', '/')}.py", []).append(str(path.relative_to(root)))
    return found


def _mark(pristine: Path, root: Path) -> list[tuple[str, int, int]]:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(pristine, root)
    statements = instrument(root / PACKAGE, ROOMS)
    compile_package(root)
    return statements


def _measure(work: Path, statements: int, files: list[str]) -> Iterator[tuple[str, list[tuple[str, float, list[int]]]]]:
    """For each file its tests that pass: name, seconds, numbers of the statements that they run."""
    marks, out = work / "marks", work / "found.json"
    marks.write_bytes(bytes(statements + 1))
    server = Server(work / "marked", writing=True)
    for file in files:
        out.unlink(missing_ok=True)
        outcome = server.run([file], None, LONGEST_FILE_S, {"marks": str(marks), "out": str(out)})
        found = json.loads(out.read_text()) if out.exists() else {}
        passed = {name: one for name, one in found.items() if one["passed"]}
        told = f"{file}: {len(passed)} of {len(found)} tests in {outcome.seconds:.1f} s, code {outcome.code}"
        print(told, file=sys.stderr, flush=True)
        if not outcome.passed:
            print(outcome.log[-600:], file=sys.stderr, flush=True)
        yield file, [(name, one["seconds"], one["seen"]) for name, one in passed.items()]
    server.close()


def _digest_of(path: Path) -> str:
    """Of a file, or of all Python files of a folder."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _files(root: Path, roots: tuple[str, ...]) -> list[str]:
    files: list[Path] = []
    for one in roots:
        path = root / one
        files += [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return [str(path.relative_to(root)) for path in files]

"""The list of mistakes fits the package, and the runner tells a killed mutant from one that hangs or survives.

Whether the mutants of the package are killed is told by `python -m tests.mutants`, which takes too long to be a test.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.__main__ import HAND, fits, made
from tests.mutants.accepted import ACCEPTED
from tests.mutants.copying import compile_package, environment
from tests.mutants.equivalence import is_equivalent
from tests.mutants.forking import Server
from tests.mutants.mutant import Mutant, mutant
from tests.mutants.reach import Reach, Timed
from tests.mutants.running import EQUIVALENT, KILLED, SURVIVED, TIMED_OUT, UNREACHED, judge
from tests.mutants.seen import VARIABLE, instrument

ROOT = Path(__file__).resolve().parents[2]


def test_nearly_every_mistake_fits_the_package_and_is_a_program_that_does_otherwise() -> None:
    assert len({one.name for one in HAND}) == len(HAND) >= 60
    stale = [one.name for one in HAND if not fits(ROOT, one)]
    assert len(stale) <= 0.05 * len(HAND), f"bring these up to date: {stale}"
    mistakes = [made(ROOT, one) for one in HAND if fits(ROOT, one)]
    for one in mistakes:
        compile(one.mutated, one.path, "exec")
        assert one.lines
        assert one.why
    assert {one.package for one in mistakes} >= {"comparison", "rules", "experiment", "verdict"}


def test_every_accepted_survivor_has_a_reason_and_a_file() -> None:
    for one in ACCEPTED:
        assert one.reason
        assert (ROOT / one.path).is_file()


EQUAL = [
    ("def f(x: int | None) -> int | None: return x", "def f(x: int & None) -> int | None: return x"),
    ('def f():\n    """One."""\n    return 1', 'def f():\n    """Two."""\n    return 1'),
    ("@dataclass(frozen=True, slots=True)\nclass A: pass", "@dataclass(frozen=False, slots=True)\nclass A: pass"),
    ("y = x is None", "y = x == None"),
    ("y = x is not Kind.ADDED", "y = x != Kind.ADDED"),
    ("for a in zip(b, c, strict=True): pass", "for a in zip(b, c, strict=False): pass"),
    ("assert x is not None and y is not None", "assert x is not None or y is not None"),
    ("BLOCK_NUMEL: Final = 65536", "BLOCK_NUMEL: Final = 65537"),
    ("y = f\"{'is' if len(a) == 1 else 'are'}\"", "y = f\"{'is' if len(a) != 1 else 'are'}\""),
    ("def f(*, a): return a", "def f(a, /): return a"),
]
OTHER = [
    ("y = x is None", "y = x is not None"),
    ("for a in zip(b, c, strict=False): pass", "for a in zip(b, c, strict=True): pass"),
    ("assert x > 1 and y", "assert x > 1 or y"),
    ("LIMIT: Final = 64", "LIMIT: Final = 65"),
    ("y = 'behind' if a < 0 else 'ahead'", "y = 'behind' if a > 0 else 'ahead'"),
    ("y = 'text'", "y = 'other'"),
]


@pytest.mark.parametrize(("left", "right"), EQUAL)
def test_what_never_runs_or_cannot_be_told_is_the_same_program(left: str, right: str) -> None:
    assert is_equivalent(left, right)


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_what_does_otherwise_is_another_program(left: str, right: str) -> None:
    assert not is_equivalent(left, right)


SOURCE = """
def least(values):
    found = None
    for one in values:
        if found is None or one < found:
            found = one
    while found is None:
        return 0
    return found


def unused(value):
    return value + 1
"""
TESTS = """
from ckptcheck.room.numbers import least


def test_of_several():
    assert least([2, 1]) == 1


def test_of_none():
    assert least([]) == 0
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one module and its two tests."""
    root = tmp_path_factory.mktemp("small") / "copy"
    for path, text in {
        "ckptcheck/__init__.py": "",
        "ckptcheck/room/numbers.py": SOURCE,
        "tests/test_numbers.py": TESTS,
        **{f"tests/mutants/{name}.py": (ROOT / f"tests/mutants/{name}.py").read_text() for name in ("server",)},
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    compile_package(root)
    return root


@pytest.fixture(scope="module")
def server(small: Path) -> Iterator[Server]:
    """A server over the small repository."""
    made = Server(small, bare=True)
    yield made
    made.close()


def _changed(old: str, new: str) -> Mutant:
    return mutant("change", "ckptcheck/room/numbers.py", SOURCE, SOURCE.replace(old, new))


REACH = Reach(
    [("ckptcheck/room/numbers.py", 3, 9), ("ckptcheck/room/numbers.py", 13, 13)],
    [Timed(f"tests/test_numbers.py::test_of_{name}", 0.01) for name in ("several", "none")],
    [[0], [0]],
)
FATES = [
    ("one < found", "one > found", KILLED),
    ("one < found", "one <= found", SURVIVED),
    ("return 0", "pass", TIMED_OUT),
    ("value + 1", "value - 1", UNREACHED),
    ("found is None or", "found == None or", EQUIVALENT),
]


@pytest.mark.parametrize(("old", "new", "fate"), FATES)
def test_a_mutant_meets_its_fate_and_its_file_is_as_before(
    old: str, new: str, fate: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.mutants.running.LIMIT_LEAST_S", 1.0 if fate == TIMED_OUT else 30.0)
    met = judge(_changed(old, new), server, REACH)
    assert met.fate == fate
    assert (server.root / "ckptcheck/room/numbers.py").read_text() == SOURCE


def test_statements_that_run_are_marked_in_a_fresh_interpreter(small: Path, tmp_path: Path) -> None:
    root = tmp_path / "marked"
    (root / "ckptcheck/room").mkdir(parents=True)
    (root / "ckptcheck/__init__.py").write_text("")
    (root / "ckptcheck/room/numbers.py").write_text('"""A room."""\n' + SOURCE)
    statements = instrument(root / "ckptcheck", ("room",))
    marks = root / "marks"
    marks.write_bytes(bytes(len(statements) + 1))
    code = "from ckptcheck.room.numbers import least; assert least([3]) == 3"
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**environment(root, writing=False), VARIABLE: str(marks)},
        check=True,
    )
    ran = {first for (_, first, _), mark in zip(statements, marks.read_bytes(), strict=False) if mark}
    lines = ['"""A room."""', *SOURCE.splitlines()]
    assert {lines[line - 1].strip() for line in ran} == {
        "found = None",
        "for one in values:",
        "if found is None or one < found:",
        "found = one",
        "while found is None:",
        "return found",
    }


def test_a_line_is_run_by_the_tests_of_its_innermost_statement() -> None:
    tests = [Timed(f"tests/test_{name}.py::test", 0.1) for name in ("block", "inner", "other")]
    reach = Reach([("a.py", 2, 9), ("a.py", 4, 5), ("b.py", 1, 1)], tests, [[0], [0, 1], [2]])
    assert [one.name for one in reach.running("a.py", [4])] == ["tests/test_inner.py::test"]
    assert [one.name for one in reach.running("a.py", [8])] == [
        "tests/test_block.py::test",
        "tests/test_inner.py::test",
    ]
    assert reach.running("a.py", [1]) == tests[:2]

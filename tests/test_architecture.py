"""The walls of the house, and what the door may cost."""

import ast
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ckptcheck"
HEAVY = {"torch", "numpy", "rich", "safetensors", "xxhash"}

OUTSIDE_KNOWN_TO = {
    "ckptcheck.state": {"torch"},
    "ckptcheck.trace": {"torch"},
    "ckptcheck.reports": {"rich"},
    "ckptcheck.finding": set(),
    "ckptcheck.errors": set(),
    "ckptcheck.progress": set(),
    "ckptcheck.config": set(),
    "ckptcheck.pytest_plugin": {"pytest"},
}
"""Room: the packages outside of the standard library that it may import."""
LAZY = {("ckptcheck.state.tensor_bytes", "xxhash"), ("ckptcheck.state.pieces", "numpy")}
"""Imported inside a function, where it is installed; the room works without it."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        "ckptcheck", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def modules_of(graph: grimp.ImportGraph, room: str) -> list[str]:
    return [module for module in graph.modules if module == room or module.startswith(f"{room}.")]


def test_the_contracts_of_pyproject_are_kept():
    linter = (
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(cache_dir=None, no_cache=True))"
    )
    done = subprocess.run([sys.executable, "-c", linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("room", OUTSIDE_KNOWN_TO)
def test_a_room_imports_nothing_from_outside_but_what_it_may(graph, room):
    allowed = OUTSIDE_KNOWN_TO[room] | sys.stdlib_module_names | {"ckptcheck"}
    found = {
        (module, imported)
        for module in modules_of(graph, room)
        for imported in graph.find_modules_directly_imported_by(module)
        if imported.split(".")[0] not in allowed
    }
    assert found - LAZY == set()


def test_reports_see_nothing_but_findings(graph):
    inside = {
        imported
        for module in modules_of(graph, "ckptcheck.reports")
        for imported in graph.find_modules_directly_imported_by(module)
        if imported.split(".")[0] == "ckptcheck" and not imported.startswith("ckptcheck.reports")
    }
    assert inside <= {"ckptcheck", "ckptcheck.errors", "ckptcheck.finding"}


@pytest.mark.parametrize("code", [
    "import ckptcheck",
    "import ckptcheck.finding, ckptcheck.errors, ckptcheck.progress",
    "from ckptcheck.cli.main import door; door.main(['--help'])",
    "from ckptcheck.cli.main import door; door.main(['--version'])",
    "from ckptcheck.cli.main import door; door.main(['verify', '--help'])",
    "from ckptcheck.cli.main import door; door.main(['diff', '--help'])",
    "from ckptcheck.cli.main import door; door.main(['check', '--help'])",
    "from ckptcheck.cli.main import door; door.main(['inspect', '--help'])",
    "from ckptcheck.cli.main import door; door.main(['explain', '--help'])",
    "import ckptcheck.pytest_plugin",
])  # fmt: skip
def test_what_must_be_quick_imports_nothing_heavy(code):
    told = f"import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); {code}"
    done = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "ckptcheck" in done.stderr.split()
    assert HEAVY.isdisjoint(done.stderr.split())


def test_every_room_is_a_package():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    strangers = {str(one.relative_to(PACKAGE)) for one in folders if not (one / "__init__.py").is_file()}
    assert strangers == {"trace/injection/site"}  # stands on the path of a script, and must hold one file


def test_what_runs_in_a_script_needs_only_the_standard_library_and_torch(graph):
    reached = graph.find_upstream_modules("ckptcheck.trace.script.start")
    tops = {module.split(".")[0] for module in reached}
    assert tops - sys.stdlib_module_names == {"ckptcheck", "torch", "xxhash"}
    users = {
        (module, top)
        for module in reached
        for top in ("xxhash",)
        if graph.direct_import_exists(importer=module, imported=top)
    }
    assert users <= LAZY


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert len(text.splitlines()) <= 300
    assert {one.name for one in functions if (one.end_lineno or 0) - one.lineno >= 60} == set()

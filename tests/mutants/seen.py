"""Which test runs which statement: the statements of a copy mark a byte of a shared file as they are run.

A mapped file costs a store for each statement, in this process, in its forks and in fresh interpreters alike, so
the map holds what the workers of an experiment run as well.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "CKPTCHECK_SEEN"
"""The environment variable that names the file."""
MARKER = f'''"""Marks statements as run."""

import mmap
import os


def _opened():
    name = os.environ.get("{VARIABLE}")
    if not name:
        return bytearray(COUNT)
    with open(name, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


SEEN = _opened()
'''


def instrument(package: Path, rooms: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Make the statements inside functions of these rooms mark themselves.

    Returns for each its file, from the folder above the package, its first and its last line.
    """
    statements: list[tuple[str, int, int]] = []
    for room in rooms:
        for path in sorted((package / room).rglob("*.py")):
            tree = ast.parse(path.read_text())
            marked = _Marking(str(path.relative_to(package.parent)), statements).visit(tree)
            place = next((n for n, one in enumerate(marked.body) if not _must_lead(one)), len(marked.body))
            line = f"from {package.name}._seen import SEEN as __seen__"
            marked.body[place:place] = ast.parse(line).body
            path.write_text(ast.unparse(ast.fix_missing_locations(marked)) + "\n")
    (package / "_seen.py").write_text(MARKER.replace("COUNT", str(len(statements) + 1)))
    return statements


def _must_lead(one: ast.stmt) -> bool:
    future = isinstance(one, ast.ImportFrom) and one.module == "__future__"
    return future or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))


class _Marking(ast.NodeTransformer):
    """Puts a mark before each statement inside functions."""

    def __init__(self, path: str, statements: list[tuple[str, int, int]]) -> None:
        self._path = path
        self._statements = statements
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if self._depth and not isinstance(node, ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list):
                    setattr(node, field, list(self._marked(block)))
        return super().generic_visit(node)

    def _marked(self, block: list[ast.stmt]) -> Iterator[ast.stmt]:
        for place, one in enumerate(block):
            if not (place == 0 and _must_lead(one)):
                yield from ast.parse(f"__seen__[{len(self._statements)}] = 1").body
                self._statements.append((self._path, one.lineno, one.end_lineno or one.lineno))
            yield one

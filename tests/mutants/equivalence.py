"""Rules by which a mutant is the same program: what no test can tell is no survivor.

Both sides are reduced to what they do and compared. Each reduction has its reason:

- annotations, docstrings and `if TYPE_CHECKING` never run;
- the marks that make an argument one by name or by place only bind our own calls;
- a plural in a message is not the message (GRAMMAR);
- `cast(T, x)` is x; an assertion that something `is not None` is there for the type checker;
- `frozen` and `slots` of a dataclass forbid what the package does not do;
- `is` and `==` agree on None, True, False and members of an enumeration;
- `zip(..., strict=True)` guards against our own mistakes: taking the guard away changes nothing that it lets through;
- constants that only set the pace or the size of a piece of work (PACE).
"""

import ast
import copy
from typing import Final

PACE: Final = {
    "BLOCK_NUMEL": "elements compared at a time",
    "_RUN": "length of a dot product",
    "_CHUNK_BYTES": "bytes read at a time",
    "CHUNK_BYTES": "bytes read at a time",
    "PIECE_BYTES": "bytes read at a time",
    "_MOST_BYTES": "how much of a tensor is sampled",
    "MAX_PAIRS": "beyond it a slower search is not tried",
    "MAX_ROWS": "rows of a report",
    "KEPT": "names of a list that a message holds",
    "LOOK_S": "how often a silent worker is looked at",
    "GRACE_S": "how long a worker may take to go away",
    "_TRIED": "how many prefixes are tried",
}
"""Constants of speed and size, with what they say."""
GRAMMAR: Final = (
    {"is", "are"}, {"was", "were"}, {"it", "them"}, {"", "s"}, {"begins", "begin"}, {"differs", "differ"},
    {"name", "names"}, {"agrees", "agree"}, {"has", "have"},
)  # fmt: skip
"""Pairs of words that only the number of things decides between."""


def is_equivalent(original: str, mutated: str) -> bool:
    """Whether both do the same, by the rules above. A text that does not parse is no program: not equivalent."""
    try:
        pair = ast.parse(original), ast.parse(mutated)
    except SyntaxError:
        return False
    reduced = [ast.dump(_Reduction().visit(copy.deepcopy(one))) for one in pair]
    if reduced[0] == reduced[1]:
        return True
    unguarded = [ast.dump(_Reduction(guards=False).visit(one)) for one in pair]
    return unguarded[0] == unguarded[1] and original.count("strict=True") > mutated.count("strict=True")


class _Reduction(ast.NodeTransformer):
    """Takes out what makes no difference."""

    def __init__(self, guards: bool = True) -> None:
        self._guards = guards

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.Pass()
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_arguments(self, node: ast.arguments) -> ast.AST:
        node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
        node.defaults = [*node.defaults, *(one for one in node.kw_defaults if one is not None)]
        node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        words = [one.value if isinstance(one, ast.Constant) else None for one in (node.body, node.orelse)]
        return ast.Constant(None) if set(words) in GRAMMAR else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        is_alias = ast.unparse(node.annotation) == "TypeAlias"
        paced = isinstance(node.target, ast.Name) and node.target.id in PACE
        node.annotation = ast.Constant(None)
        if is_alias or paced:
            node.value = None
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return ast.Pass()
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Pass() if _is_for_the_type_checker(node.test) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        if called == "cast" and len(node.args) == 2:
            return self.visit(node.args[1])
        if called == "dataclass":
            node.keywords = [one for one in node.keywords if one.arg not in ("frozen", "slots")]
        if called == "zip" and not self._guards:
            node.keywords = []
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1 and _is_single(node.comparators[0]):
            same = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}.get(type(node.ops[0]))
            node.ops = [same()] if same is not None else node.ops
        return self.generic_visit(node)


def _is_single(node: ast.expr) -> bool:
    """None, True, False, or something like Kind.CHANGED."""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id[0].isupper()


def _is_for_the_type_checker(test: ast.expr) -> bool:
    if isinstance(test, ast.BoolOp):
        return all(_is_for_the_type_checker(one) for one in test.values)
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and _is_single(test.comparators[0])

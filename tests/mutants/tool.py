"""Mutants made by a tool: the operators of cosmic-ray, one at each place of the package that each applies to.

The operators are taken as a library: what runs the tests is ours, since a run of the whole suite for each mutant
would take weeks. Of the operators for arithmetic and comparison, one replacement a sign is enough.
"""

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tests.mutants.copying import PACKAGE
from tests.mutants.mutant import Mutant, mutant

OPERATORS: Final = (
    "ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add", "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul", "ReplaceBinaryOperator_FloorDiv_Mul", "ReplaceBinaryOperator_Mod_Mul",
    "ReplaceBinaryOperator_Pow_Mul", "ReplaceBinaryOperator_RShift_LShift", "ReplaceBinaryOperator_LShift_RShift",
    "ReplaceBinaryOperator_BitOr_BitAnd", "ReplaceBinaryOperator_BitAnd_BitOr", "ReplaceBinaryOperator_BitXor_BitOr",
    "ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq", "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_Lt_GtE", "ReplaceComparisonOperator_LtE_Lt", "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_Gt_LtE", "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt", "ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceUnaryOperator_USub_UAdd", "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_Invert",
    "ReplaceUnaryOperator_Delete_USub", "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue",
    "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak",
    "ExceptionReplacer", "NumberReplacer", "RemoveDecorator", "ZeroIterationForLoop",
)  # fmt: skip


def sample(root: Path, rooms: Sequence[str], count: int, seed: int, cache: Path) -> list[Mutant]:
    """A seeded random sample without repeats of all mutants of these rooms; needs cosmic-ray.

    The places are listed once and kept in `cache`.
    """
    if not cache.exists():
        cache.write_text(json.dumps([list(one) for one in _places(root, rooms)]))
    places = [tuple(one) for one in json.loads(cache.read_text()) if one[0].split("/")[1] in rooms]
    random.Random(seed).shuffle(places)
    programs = (one for place in places if _is_program((one := _mutant(root, *place)).mutated))
    return list(islice(programs, count))


def number_of_places(cache: Path) -> int:
    """How many mutants the sample was drawn from."""
    return len(json.loads(cache.read_text()))


def _places(root: Path, rooms: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Every (file, operator, occurrence)."""
    from cosmic_ray.ast import get_ast
    from cosmic_ray.plugins import get_operator

    operators = [(name, get_operator(f"core/{name}")()) for name in OPERATORS]
    for room in rooms:
        for path in sorted((root / PACKAGE / room).rglob("*.py")):
            nodes = list(_nodes(get_ast(path.read_text())))
            for name, operator in operators:
                found = sum(1 for node in nodes for _ in operator.mutation_positions(node))
                yield from ((str(path.relative_to(root)), name, one) for one in range(found))


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def _is_program(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _mutant(root: Path, path: str, operator: str, occurrence: int) -> Mutant:
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    original = (root / path).read_text()
    mutated = mutate_code(original, get_operator(f"core/{operator}")(), occurrence)
    return mutant(f"{operator}-{occurrence}", path, original, mutated or original)

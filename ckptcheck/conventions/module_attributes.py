"""What a pickled module says beside its parameters: the classes of its submodules and their own attributes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ckptcheck.conventions.entries import entries, merge
from ckptcheck.conventions.weights import is_module
from ckptcheck.conventions.words import word_of
from ckptcheck.state.raw import Foreign, Raw
from ckptcheck.state.training_state import Entry
from ckptcheck.state.tree import CLASS

DESCRIPTION: Final = "module"
"""What the paths begin with: "module[fc.0].p" is the dropout of submodule fc.0. A checkpoint of weights has none."""
MAX_ATTRIBUTES: Final = 100_000
"""Attributes of all submodules together that are told; of what is beyond them, how many there are."""
_MAX_DEPTH: Final = 4


def module_entries(module: Foreign) -> dict[str, Entry]:
    """Class, mode and plain or tensor attributes of a pickled module and of those in it, by path.

    Private attributes are left out: hooks and torch's own bookkeeping. Of an object in an attribute its class is told.
    """
    found: dict[str, Entry] = {}
    left = MAX_ATTRIBUTES
    for name, one in submodules(module):
        here = f"{DESCRIPTION}[{name}]"
        told: dict[str, Raw] = {CLASS: one.class_name}
        told |= {str(key): value for key, value in one.state.items() if not str(key).startswith("_")}
        for key, value in told.items():
            left -= 1
            if left >= 0:
                merge(found, entries(value if _is_simple(value, _MAX_DEPTH) else _class_of(value), f"{here}.{key}"))
    if left < 0:
        merge(found, entries(-left, f"{DESCRIPTION}.further"))
    return found


def submodules(module: Foreign) -> Iterator[tuple[str, Foreign]]:
    """A module and those in it by name, each before its children; "" is its own."""
    waiting: list[tuple[str, Foreign]] = [("", module)]
    while waiting:
        here, one = waiting.pop()
        yield here, one
        children = [(f"{here}.{key}" if here else str(key), child) for key, child in one.state["_modules"].items()]
        waiting.extend(reversed([(name, child) for name, child in children if is_module(child)]))


def _is_simple(value: Raw, depth: int) -> bool:
    """Whether there is no object in a value, but for what is known by its text."""
    if isinstance(value, Foreign):
        return word_of(value) is not None
    if isinstance(value, Mapping):
        return depth > 0 and all(_is_simple(one, depth - 1) for one in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return depth > 0 and all(_is_simple(one, depth - 1) for one in value)
    return True


def _class_of(value: Any) -> str:
    return value.class_name if isinstance(value, Foreign) else type(value).__name__

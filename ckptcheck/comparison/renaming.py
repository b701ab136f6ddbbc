"""Names of one trace in words of another, where a wrapper has put a prefix before all of them."""

from collections.abc import Callable
from typing import Final

from ckptcheck.trace.items import Item
from ckptcheck.trace.reading import Trace

NAMED: Final = frozenset({"param", "grad", "state", "buffer", "ema"})
"""Kinds of items that are called by a name in the model."""
TRIED: Final = 4
"""How many names are tried to tell a prefix from."""


def renamed_items(left: Trace, right: Trace) -> Callable[[Item], Item]:
    """What turns an item of the right trace into the left one's: as it is where most names agree."""
    names = [{item.name for item, _ in one.tensors() if item.kind == "param"} for one in (left, right)]
    given, taken = _prefix(*names)

    def renamed(item: Item) -> Item:
        if item.kind not in NAMED or not (given or taken) or not item.name.startswith(taken):
            return item
        return item._replace(name=given + item.name.removeprefix(taken))

    return renamed


def _prefix(left: set[str], right: set[str]) -> tuple[str, str]:
    """(what the left side's names have in front, what the right side's have), for the most names in common."""
    best, found = len(left & right), ("", "")
    for given, taken in _tried(left, right):
        common = sum(name.startswith(taken) and given + name.removeprefix(taken) in left for name in right)
        if common > best:
            best, found = common, (given, taken)
    return found


def _tried(left: set[str], right: set[str]) -> set[tuple[str, str]]:
    tried = set()
    for name in sorted(right)[:TRIED]:
        tried |= {(one.removesuffix(name), "") for one in left if one.endswith(f".{name}")}
    for name in sorted(left)[:TRIED]:
        tried |= {("", one.removesuffix(name)) for one in right if one.endswith(f".{name}")}
    return tried

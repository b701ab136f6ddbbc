"""How two nested plain values differ (state_dicts of schedulers, samplers, ...): the only user of deepdiff."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckptcheck.state.tree import MAX_DEPTH, canonical, is_long_plain, join

MAX_VALUES: Final = 200_000
"""Values looked at on a side: a few references to one list, nested, can stand for more than memory holds."""
MAX_TEXT: Final = 200
"""Characters of a side's text; the rest is cut."""

_NOT_COMPARED: Final = "not-compared"


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """One place where two values differ.

    `path` is in the notation of `ckptcheck.state.tree.join`, "" for the root. `kind` is "changed", "added"
    (right only), "removed" (left only) or "type" (int, float, bool, list, tuple, ... are told apart).
    `left` and `right` are canonical texts, a container's its kind and length; None on the side that lacks it.
    """

    path: str
    kind: str
    left: str | None
    right: str | None


def diff_values(left: Any, right: Any) -> tuple[ValueDifference, ...]:
    """Compare plain values and containers of them, sorted by path; empty where they are the same.

    Floats are compared by their bits: 0.0 is not -0.0, a NaN equals itself. Mappings of any class are
    alike, and do not depend on their order; a long sequence of plain values is one value. What is no plain
    value is known by its class only (`ckptcheck.state.tree.is_plain` tells). What is nested deeper than
    `MAX_DEPTH`, itself included, or comes after `MAX_VALUES` values is reported as changed, not compared.
    """
    sides = _Canonical("left"), _Canonical("right")
    left_tree, right_tree = sides[0].tree(left), sides[1].tree(right)
    if left_tree == right_tree:
        return ()
    from deepdiff import DeepDiff  # a tenth of a second that equal values need not pay

    found = DeepDiff(
        left_tree,
        right_tree,
        view="tree",
        zip_ordered_iterables=True,  # positions mean something here: no alignment
        threshold_to_diff_deeper=0,  # else mappings with few keys in common count as one change
    )
    keys = sides[0].keys | sides[1].keys
    differences = [_difference(entry, keys) for entries in found.values() for entry in entries]
    return tuple(sorted(differences, key=lambda one: one.path))


class _Canonical:
    """Turns one side into dicts, lists and tuples of texts "type text"; `keys` gives the key behind a text."""

    def __init__(self, side: str) -> None:
        self.keys: dict[str, Any] = {}
        self._side = side
        self._left = MAX_VALUES

    def tree(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        self._left -= 1
        is_sequence = isinstance(value, list | tuple)
        if not (isinstance(value, Mapping) or is_sequence) or (is_sequence and is_long_plain(value)):
            return f"{type(value).__qualname__} {canonical(value)}"
        if self._left < len(value) or not depth:
            # The side in the text keeps two such places from passing for equal.
            return f"{_NOT_COMPARED} {self._side}"
        if isinstance(value, Mapping):
            return self._mapping(value, depth - 1)
        items = [self.tree(item, depth - 1) for item in value]
        return items if isinstance(value, list) else tuple(items)

    def _mapping(self, mapping: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key, item in mapping.items():
            text = canonical(key)
            while text in tree:  # two keys that are no plain values
                text += "'"
            self.keys[text] = key
            tree[text] = self.tree(item, depth)
        return tree


def _difference(entry: Any, keys: Mapping[str, Any]) -> ValueDifference:
    path = ""
    for step in entry.path(output_format="list"):
        path = join(path, keys[step]) if isinstance(step, str) else f"{path}[{step}]"
    if entry.report_type.endswith("_added"):
        return ValueDifference(path, "added", None, _text(entry.t2))
    if entry.report_type.endswith("_removed"):
        return ValueDifference(path, "removed", _text(entry.t1), None)
    kinds = [one.partition(" ")[0] if isinstance(one, str) else type(one).__name__ for one in (entry.t1, entry.t2)]
    kind = "changed" if kinds[0] == kinds[1] or _NOT_COMPARED in kinds else "type"
    return ValueDifference(path, kind, _text(entry.t1), _text(entry.t2))


def _text(tree: Any) -> str:
    if isinstance(tree, str):
        kind, _, text = tree.partition(" ")
        text = "not compared: nested too deep, or too large" if kind == _NOT_COMPARED else text
        return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."
    name = {dict: "mapping"}.get(type(tree), type(tree).__name__)
    return f"{name} of {len(tree)}"

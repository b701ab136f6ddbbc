"""Nested Python values (state_dicts) as flat leaves with paths, and one canonical text for a plain value."""

import enum
import math
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MAX_DEPTH: Final = 64
"""Deeper nesting is taken as one opaque leaf."""
MAX_SPLIT: Final = 32
"""Longer sequences of plain values are one leaf: a data order of 60,000 indices is one value, not 60,000."""

CLASS: Final = "<class>"
"""Last key of what is told of an object beside its content: its class, dtype and shape of a tensor of parts."""
MAXLEN: Final = "<maxlen>"
"""Last key of a queue's bound."""
ASIDES: Final = (CLASS, MAXLEN)
"""Last keys of what is no content: another format may not write it."""

_DECIMAL_BITS: Final = 10_000
"""Python refuses to write larger integers in decimal."""
_PLAIN = (bool, int, float, str, bytes, bytearray, complex, type(None), range, enum.Enum)
_TOLD_BY_REPR: Final = frozenset({"torch.dtype", "torch.device"})
"""Classes whose repr says everything about a value, and is the same in every process."""
_PLAIN_OF: Final[dict[type, Callable[[Any], Any]]] = {
    int: int.__int__, float: float.__float__, str: str.__str__, bytes: bytes.__bytes__, complex: complex.__complex__,
}  # fmt: skip
"""From an instance of a subclass to the plain value in it, whatever the subclass overrides."""


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """A value with more that is to be told of it, under its own path: what a tensor carries, the class of an object."""

    value: Any
    more: Mapping[str, Any]


def flatten(tree: Any, path: str = "", depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) in the tree's own order; dict keys join by dots, positions and other keys stand in brackets.

    A leaf is anything that is neither a mapping nor a list, tuple or deque, an empty container, or a long sequence
    of plain values. The tree must not contain itself; below `depth` levels a container is a leaf. A mapping whose keys
    are the positions of a list has them in braces. No path comes twice: where a key with a dot in it spells another
    leaf's path, the one whose keys sort later is marked with "(2)", whatever the order of the tree.
    """
    leaves = list(_walk(tree, path, depth))
    if len({found for found, _ in leaves}) == len(leaves):
        yield from leaves
        return
    keys = _keys(tree, (path,), depth)
    yield from zip(_marked([found for found, _ in leaves], list(keys)), (leaf for _, leaf in leaves), strict=True)


def _walk(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth and isinstance(tree, Mapping) and tree:
        as_positions = _are_positions(tree)
        for key, value in tree.items():
            yield from _walk(value, f"{path}{{{key}}}" if as_positions else join(path, key), depth - 1)
    elif depth and isinstance(tree, list | tuple | deque) and tree and not is_long_plain(tree):
        for place, value in enumerate(tree):
            yield from _walk(value, f"{path}[{place}]", depth - 1)
    elif isinstance(tree, Beside):
        yield from _walk(tree.value, path, depth)
        for key, value in tree.more.items():
            yield from _walk(value, join(path, key), max(depth - 1, 0))
    else:
        yield path, tree


def _are_positions(tree: Mapping[Any, Any]) -> bool:
    """Whether a mapping's keys are 0, 1, ... as a list's positions are."""
    return type(next(iter(tree))) is int and all(type(key) is int and 0 <= key < len(tree) for key in tree)


def _keys(tree: Any, above: tuple[str, ...], depth: int) -> Iterator[tuple[str, ...]]:
    """The keys above each leaf, as texts, in the order of `_walk`."""
    if depth and isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _keys(value, (*above, canonical(key)), depth - 1)
    elif depth and isinstance(tree, list | tuple | deque) and tree and not is_long_plain(tree):
        for place, value in enumerate(tree):
            yield from _keys(value, (*above, f"[{place}]"), depth - 1)
    elif isinstance(tree, Beside):
        yield from _keys(tree.value, above, depth)
        for key, value in tree.more.items():
            yield from _keys(value, (*above, f"<{key}>"), max(depth - 1, 0))
    else:
        yield above


def _marked(paths: list[str], keys: list[tuple[str, ...]]) -> list[str]:
    """Paths of which none comes twice; those whose keys sort first stay as they are."""
    taken = set(paths)
    counts: dict[str, int] = {}
    marked = list(paths)
    for place in sorted(range(len(paths)), key=lambda place: keys[place]):
        path = paths[place]
        count = counts.get(path, 0) + 1
        while count > 1 and f"{path} ({count})" in taken:
            count += 1
        counts[path] = count
        if count > 1:
            marked[place] = f"{path} ({count})"
            taken.add(marked[place])
    return marked


def join(path: str, key: Any) -> str:
    """`path` extended by a mapping's key; string keys by a dot, others in brackets."""
    if isinstance(key, str):
        return f"{path}.{key}" if path else key
    return f"{path}[{canonical(key)}]"


def is_long_plain(sequence: list[Any] | tuple[Any, ...] | deque[Any]) -> bool:
    """Whether a sequence is long and holds plain values only, so that it is one leaf."""
    return len(sequence) > MAX_SPLIT and all(issubclass(kind, _PLAIN) for kind in set(map(type, sequence)))


def is_plain(value: Any) -> bool:
    """Whether `canonical` says everything about the value: plain values and containers of them."""
    return _is_plain(value, MAX_DEPTH)


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, _PLAIN) or _class_name(value) in _TOLD_BY_REPR or _is_numpy(value):
        return True
    if isinstance(value, Mapping):
        pairs = value.items()
        return depth > 0 and all(_is_plain(key, depth - 1) and _is_plain(item, depth - 1) for key, item in pairs)
    if isinstance(value, list | tuple | set | frozenset | deque):
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    return False


def canonical(value: Any) -> str:
    """One text for a plain value, the same in every process: equal texts mean equal types and bits.

    Floats are told apart by their bits (0.0 from -0.0, one NaN from another); mappings and sets do not
    depend on their order, and all mapping classes are one type, as are all sets and all tuples; numpy scalars
    and arrays count with class, dtype, shape and bytes, members of an enum with their names. Anything else,
    and a container nested deeper than `MAX_DEPTH`, is known by its class name only: see `is_plain`.
    """
    return _text(value, MAX_DEPTH)


def _text(value: Any, depth: int) -> str:
    if type(value) in _PLAIN:
        return _plain_text(value)
    if _is_numpy(value):
        name = type(value).__name__ if hasattr(value, "__array_finalize__") else ""  # of a scalar the dtype says it
        return f"numpy{name and '.'}{name}:{value.dtype.str}{list(value.shape)}:{value.tobytes().hex()}"
    if depth and isinstance(value, Mapping):
        pairs = sorted((_text(key, depth - 1), _text(item, depth - 1)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if depth and isinstance(value, list | tuple | set | frozenset | deque):
        return _sequence_text(value, [_text(item, depth - 1) for item in value])
    if isinstance(value, enum.Enum):
        return f"<{_class_name(value)}.{value.name}>"
    for kind, plain in _PLAIN_OF.items():
        if isinstance(value, kind):
            return f"<{_class_name(value)}>({_plain_text(plain(value))})"
    return repr(value) if _class_name(value) in _TOLD_BY_REPR else f"<{_class_name(value)}>"


def _plain_text(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > _DECIMAL_BITS:
        return hex(value)
    if isinstance(value, float) and math.isnan(value):
        return f"nan:{struct.pack('>d', value).hex()}"
    if isinstance(value, bytes | bytearray):
        return f"{type(value).__name__}:{value.hex()}"
    if isinstance(value, complex):
        return f"complex({_plain_text(value.real)}, {_plain_text(value.imag)})"
    return repr(value)


def _sequence_text(value: Any, items: list[str]) -> str:
    if isinstance(value, set | frozenset):
        return "set{" + ", ".join(sorted(items)) + "}"
    inner = ", ".join(items)
    if isinstance(value, deque):
        return f"deque[{inner}]" if value.maxlen is None else f"deque[{inner}; {value.maxlen}]"
    return f"[{inner}]" if isinstance(value, list) else f"({inner})"


def _is_numpy(value: Any) -> bool:
    # An array of objects has addresses for bytes.
    return type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject


def _class_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"

"""Nested Python values (state_dicts) as flat leaves with paths, and one canonical text for a plain value."""

import enum
import math
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

MAX_DEPTH: Final = 64
"""Deeper nesting is taken as one opaque leaf."""
MAX_SPLIT: Final = 32
"""Longer sequences of plain values are one leaf: a data order of 60,000 indices is one value, not 60,000."""

_DECIMAL_BITS: Final = 10_000
"""Python refuses to write larger integers in decimal."""
_PLAIN = (bool, int, float, str, bytes, bytearray, complex, type(None), range, enum.Enum)
_TOLD_BY_REPR: Final = frozenset({"torch.dtype", "torch.device"})
"""Classes whose repr says everything about a value, and is the same in every process."""
_PLAIN_OF: Final[dict[type, Callable[[Any], Any]]] = {
    int: int.__int__, float: float.__float__, str: str.__str__, bytes: bytes.__bytes__, complex: complex.__complex__,
}  # fmt: skip
"""From an instance of a subclass to the plain value in it, whatever the subclass overrides."""


def flatten(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) in the tree's own order; dict keys join by dots, positions and other keys stand in brackets.

    A leaf is anything that is neither a mapping nor a list, tuple or deque, an empty container, or a long sequence
    of plain values. The tree must not contain itself; below `MAX_DEPTH` levels a container is a leaf. No path comes
    twice: where a key with a dot in it spells another leaf's path, the later one is marked with "(2)".
    """
    seen: dict[str, int] = {}
    for found, leaf in _walk(tree, path, MAX_DEPTH):
        count = seen[found] = seen.get(found, 0) + 1
        yield found if count == 1 else f"{found} ({count})", leaf


def _walk(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth and isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _walk(value, join(path, key), depth - 1)
    elif depth and isinstance(tree, list | tuple | deque) and tree and not is_long_plain(tree):
        for place, value in enumerate(tree):
            yield from _walk(value, f"{path}[{place}]", depth - 1)
    else:
        yield path, tree


def join(path: str, key: Any) -> str:
    """`path` extended by a mapping's key; string keys by a dot, others in brackets."""
    if isinstance(key, str):
        return f"{path}.{key}" if path else key
    return f"{path}[{canonical(key)}]"


def is_long_plain(sequence: list[Any] | tuple[Any, ...] | deque[Any]) -> bool:
    """Whether a sequence is long and holds plain values only, so that it is one leaf."""
    return len(sequence) > MAX_SPLIT and all(isinstance(value, _PLAIN) for value in sequence)


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

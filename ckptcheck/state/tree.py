"""Nested Python values (state_dicts) as flat leaves with paths, and one canonical text for a plain value."""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_DEPTH: Final = 64
"""Deeper nesting is taken as one opaque leaf."""
MAX_SPLIT: Final = 32
"""Longer sequences of plain values are one leaf: a data order of 60,000 indices is one value, not 60,000."""

_DECIMAL_BITS: Final = 10_000
"""Python refuses to write larger integers in decimal."""
_PLAIN = (bool, int, float, str, bytes, complex, type(None))


def flatten(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (path, leaf) in the tree's own order; dict keys join by dots, positions and other keys stand in brackets.

    A leaf is anything that is neither a mapping nor a list or tuple, an empty container, or a long sequence
    of plain values. The tree must not contain itself; below `MAX_DEPTH` levels a container is a leaf.
    """
    yield from _walk(tree, path, MAX_DEPTH)


def _walk(tree: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth and isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from _walk(value, join(path, key), depth - 1)
    elif depth and isinstance(tree, list | tuple) and tree and not is_long_plain(tree):
        for place, value in enumerate(tree):
            yield from _walk(value, f"{path}[{place}]", depth - 1)
    else:
        yield path, tree


def join(path: str, key: Any) -> str:
    """`path` extended by a mapping's key; string keys by a dot, others in brackets."""
    if isinstance(key, str):
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def is_long_plain(sequence: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a sequence is long and holds plain values only, so that it is one leaf."""
    return len(sequence) > MAX_SPLIT and all(isinstance(value, _PLAIN) for value in sequence)


def is_plain(value: Any) -> bool:
    """Whether `canonical` says everything about the value: plain values and containers of them."""
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, Mapping):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return all(is_plain(item) for item in value)
    return type(value).__module__ == "numpy"


def canonical(value: Any) -> str:
    """One text for a plain value, the same in every process: equal texts mean equal types and bits.

    Floats are told apart by their bits (0.0 from -0.0, one NaN from another); mappings and sets do not
    depend on their order; numpy scalars and arrays count with dtype, shape and bytes. Anything else is
    known by its class name only: see `is_plain`.
    """
    if isinstance(value, int) and value.bit_length() > _DECIMAL_BITS:
        return hex(value)
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if not math.isnan(value) else f"nan:{struct.pack('>d', value).hex()}"
    if isinstance(value, bytes):
        return f"bytes:{value.hex()}"
    if isinstance(value, complex):
        return f"complex({canonical(value.real)}, {canonical(value.imag)})"
    if isinstance(value, Mapping):
        pairs = sorted((canonical(key), canonical(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}: {item}" for key, item in pairs) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        return _canonical_sequence(value)
    return _canonical_other(value)


def _canonical_sequence(value: Any) -> str:
    items = [canonical(item) for item in value]
    if isinstance(value, set | frozenset):
        return "set{" + ", ".join(sorted(items)) + "}"
    return ("[" if isinstance(value, list) else "(") + ", ".join(items) + ("]" if isinstance(value, list) else ")")


def _canonical_other(value: Any) -> str:
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        return f"numpy:{value.dtype.str}{list(value.shape)}:{value.tobytes().hex()}"
    kind = type(value)
    return f"<{kind.__module__}.{kind.__qualname__}>"

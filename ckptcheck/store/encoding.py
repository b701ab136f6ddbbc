"""Python values as JSON, with tags for what JSON loses. Nothing here imports torch or numpy before it is needed.

null, true, text, integers below 2**53 and finite floats (by their shortest text, which is exact) are themselves;
lists are arrays; a dict with text keys is an object. Everything else is an object whose "$" names its tag:

    {"$": "tuple", "items": [...]}                    also set, frozenset, deque (with "maxlen"), size
    {"$": "dict", "items": [[key, value], ...]}       also ordered_dict, counter, default_dict (with "factory")
    {"$": "int", "hex": "0x..."}  {"$": "float", "bits": "7ff8..."}  {"$": "complex", "parts": [real, imag]}
    {"$": "bytes", "base64": "..."} or {"$": "bytes", "blob": [ROLE, KEY]}    also bytearray
    {"$": "range", "bounds": [start, stop, step]}  {"$": "dtype", "name": "float32"}  {"$": "device", "name": "cuda:0"}
    {"$": "tensor", "role": ROLE, "key": KEY, ...}    a dense tensor in a payload: see `tensors`
    {"$": "sparse", ...}                              a sparse tensor: see `tensors`
    {"$": "array", ...}  {"$": "scalar", ...}         numpy: see `arrays`
"""

import base64
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from ckptcheck.errors import StoreError
from ckptcheck.store.manifest import Encoded

MAX_DEPTH: Final = 100
"""Deeper nesting, or a container that holds itself, is refused."""
MAX_INLINE_BYTES: Final = 256
"""Longer bytes lie in a payload."""
_EXACT: Final = 1 << 53
_AS_IS: Final = frozenset((bool, str, type(None)))
FACTORIES: Final = {kind.__name__: kind for kind in (bool, bytes, dict, float, int, list, set, str, tuple)}
"""The factories of a defaultdict that can be carried, by name."""


class Sink(Protocol):
    """Where the encoder puts what needs torch or lies in a payload; see `tensors.PayloadPlan`."""

    def foreign(self, value: Any, path: str, encode: "Encoder") -> Encoded:
        """Encode a tensor, numpy value, torch dtype, device or size; StoreError for anything else."""
        ...

    def blob(self, content: bytes, path: str) -> tuple[str, str]:
        """Put bytes into the payload and return its role and their key."""
        ...


class Encoder:
    """Encodes values; what JSON cannot hold goes to the sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def __call__(self, value: Any, path: str, depth: int = 0) -> Encoded:
        """The value as JSON. `path` says where it stands; StoreError names it when the value cannot be carried."""
        if depth > MAX_DEPTH:
            raise StoreError(f"{path}: nested deeper than {MAX_DEPTH} levels, or holding itself: it cannot be saved")
        kind = type(value)
        if kind in _AS_IS:
            return value
        if kind is int:
            return encode_int(value)
        if kind is float:
            return encode_float(value)
        if kind is list:
            return value.copy() if _is_json(value) else self._items(value, path, depth)
        if kind is dict:
            return self._dict(value, path, depth)
        tagged = _TAGGED.get(kind)
        return self._sink.foreign(value, path, self) if tagged is None else tagged(self, value, path, depth)

    def _items(self, items: Any, path: str, depth: int) -> list[Encoded]:
        return [self(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(items)]

    def _pairs(self, value: Any, path: str, depth: int) -> list[Encoded]:
        return [
            [self(key, f"{path}, key {key!r:.60}", depth + 1), self(item, f"{path}[{key!r:.60}]", depth + 1)]
            for key, item in value.items()
        ]

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> Encoded:
        if all(type(key) is str for key in value) and "$" not in value:
            return {key: self(item, f"{path}.{key}" if path else key, depth + 1) for key, item in value.items()}
        return {"$": "dict", "items": self._pairs(value, path, depth)}

    def sequence(self, value: Any, path: str, depth: int) -> Encoded:
        """A tuple, set or frozenset."""
        return {"$": type(value).__name__, "items": self._items(value, path, depth)}

    def queue(self, value: "deque[Any]", path: str, depth: int) -> Encoded:
        """A deque with its bound."""
        return {"$": "deque", "items": self._items(value, path, depth), "maxlen": value.maxlen}

    def mapping(self, value: Any, path: str, depth: int) -> Encoded:
        """An OrderedDict or Counter, in its order."""
        tag = "counter" if type(value) is Counter else "ordered_dict"
        return {"$": tag, "items": self._pairs(value, path, depth)}

    def default_dict(self, value: "defaultdict[Any, Any]", path: str, depth: int) -> Encoded:
        """A defaultdict whose factory is a builtin type or None."""
        factory = value.default_factory
        if factory is not None and factory not in FACTORIES.values():
            raise StoreError(f"{path}: a defaultdict with the factory {factory!r}: save a plain dict in its place")
        name = None if factory is None else getattr(factory, "__name__", "")
        return {"$": "default_dict", "factory": name, "items": self._pairs(value, path, depth)}

    def content(self, value: bytes | bytearray, path: str, depth: int) -> Encoded:
        """Bytes: short ones inline, long ones in the payload."""
        tag = type(value).__name__
        if len(value) <= MAX_INLINE_BYTES:
            return {"$": tag, "base64": base64.b64encode(value).decode()}
        return {"$": tag, "blob": self._sink.blob(bytes(value), path)}

    def complex(self, value: complex, path: str, depth: int) -> Encoded:
        """A complex number by the bits of its parts."""
        return {"$": "complex", "parts": [encode_float(value.real), encode_float(value.imag)]}

    def range(self, value: range, path: str, depth: int) -> Encoded:
        """A range."""
        return {"$": "range", "bounds": [encode_int(bound) for bound in (value.start, value.stop, value.step)]}


_TAGGED: Final[dict[type, Callable[[Encoder, Any, str, int], Encoded]]] = {
    tuple: Encoder.sequence,
    set: Encoder.sequence,
    frozenset: Encoder.sequence,
    deque: Encoder.queue,
    OrderedDict: Encoder.mapping,
    Counter: Encoder.mapping,
    defaultdict: Encoder.default_dict,
    bytes: Encoder.content,
    bytearray: Encoder.content,
    complex: Encoder.complex,
    range: Encoder.range,
}


def encode_int(value: int) -> Encoded:
    """Integers that a JSON reader may round are tagged; hexadecimal has no limit of digits."""
    return value if -_EXACT < value < _EXACT else {"$": "int", "hex": hex(value)}


def encode_float(value: float) -> Encoded:
    """Infinities, NaN with its bits, and -0.0, whose sign a JSON reader may drop, are tagged."""
    if math.isfinite(value) and (value or math.copysign(1.0, value) > 0):
        return value
    return {"$": "float", "bits": struct.pack(">d", value).hex()}


def encode_number(value: bool | int | float) -> Encoded:
    """A bool, int or float."""
    if isinstance(value, float):
        return encode_float(value)
    return value if isinstance(value, bool) else encode_int(value)


def _is_json(items: list[Any]) -> bool:
    # A data order of a million indices must not cost a million calls.
    kinds = set(map(type, items))
    if kinds == {int}:
        return bool(max(map(abs, items)) < _EXACT)
    return kinds <= _AS_IS

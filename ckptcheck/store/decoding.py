"""The way back from the tagged encoding; `encoding` has the table of tags."""

import base64
import binascii
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from ckptcheck.errors import StoreError
from ckptcheck.store.encoding import FACTORIES, MAX_DEPTH
from ckptcheck.store.manifest import Encoded

_JSON: Final = frozenset((bool, int, float, str, type(None)))
_TROUBLES: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class Source(Protocol):
    """What the decoder asks for values that live in a payload or in torch; one with torch, one without."""

    def foreign(self, node: dict[str, Any], decode: "Decoder") -> Any:
        """Decode a tensor, sparse tensor, numpy value, dtype, device or size; ValueError for an unknown tag."""
        ...

    def blob(self, place: Encoded) -> bytes:
        """The bytes at [role, key]; LookupError where there are none."""
        ...


class Decoder:
    """Decodes values, as often as asked; within one decoder a tensor that was shared is one object again."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._depth = 0

    def at(self, node: Encoded, where: str) -> Any:
        """The value; StoreError with `where` for JSON that the encoder cannot have written."""
        try:
            return self(node)
        except _TROUBLES as trouble:
            raise StoreError(f"{where}: holds what no save writes ({trouble}): the manifest is damaged") from trouble

    def mapping_at(self, node: Encoded, where: str) -> dict[Any, Any]:
        """As `at`, for what must be a dict."""
        value = self.at(node, where)
        if not isinstance(value, dict):
            raise StoreError(f"{where}: a dict was promised, {type(value).__name__} found: the manifest is damaged")
        return value

    def __call__(self, node: Encoded) -> Any:
        """The value of a node; any of the errors that `at` turns into StoreError."""
        if type(node) in _JSON:
            return node
        if self._depth > MAX_DEPTH + 1:  # the encoder's leaves may be one level of nodes themselves
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        try:
            return self._container(node)
        finally:
            self._depth -= 1

    def _container(self, node: Encoded) -> Any:
        if type(node) is list:
            return list(node) if set(map(type, node)) <= _JSON else self._items(node)
        if "$" not in node:
            return {key: self(value) for key, value in node.items()}
        tag = node["$"]
        decode = _TAGS.get(tag)
        return self._source.foreign(node, self) if decode is None else decode(self, node)

    def _items(self, items: Any) -> list[Any]:
        return [self(item) for item in _checked(items, list)]

    def items(self, node: dict[str, Any]) -> list[Any]:
        """The items of a sequence."""
        return self._items(node["items"])

    def pairs(self, node: dict[str, Any]) -> list[tuple[Any, Any]]:
        """The key-value pairs of a mapping."""
        return [(self(key), self(value)) for key, value in _checked(node["items"], list)]

    def queue(self, node: dict[str, Any]) -> "deque[Any]":
        """A deque with its bound."""
        return deque(self.items(node), node["maxlen"])

    def default_dict(self, node: dict[str, Any]) -> "defaultdict[Any, Any]":
        """A defaultdict with its factory."""
        name = node["factory"]
        return defaultdict(None if name is None else FACTORIES[name], self.pairs(node))

    def content(self, node: dict[str, Any]) -> bytes:
        """Bytes, inline or from a payload."""
        if "blob" in node:
            return self._source.blob(node["blob"])
        try:
            return base64.b64decode(node["base64"], validate=True)
        except binascii.Error as trouble:
            raise ValueError(f"no base64: {trouble}") from None

    def number(self, node: dict[str, Any]) -> complex:
        """A complex number."""
        real, imaginary = (self(part) for part in node["parts"])
        return complex(_checked(real, float), _checked(imaginary, float))


def decode_number(node: Encoded) -> bool | int | float:
    """A bool, int or float; LookupError, TypeError or ValueError for anything else."""
    if isinstance(node, bool | int | float):
        return node
    if node["$"] == "int":
        return int(_checked(node["hex"], str), 16)
    bits = bytes.fromhex(node["bits"])
    if len(bits) != 8:
        raise ValueError(f"{len(bits)} bytes are no float")
    return float(struct.unpack(">d", bits)[0])


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} was promised, {type(value).__name__} found")
    return value


_TAGS: Final[dict[str, Callable[[Decoder, dict[str, Any]], Any]]] = {
    "tuple": lambda decode, node: tuple(decode.items(node)),
    "set": lambda decode, node: set(decode.items(node)),
    "frozenset": lambda decode, node: frozenset(decode.items(node)),
    "deque": Decoder.queue,
    "dict": lambda decode, node: dict(decode.pairs(node)),
    "ordered_dict": lambda decode, node: OrderedDict(decode.pairs(node)),
    "counter": lambda decode, node: Counter(dict(decode.pairs(node))),
    "default_dict": Decoder.default_dict,
    "int": lambda decode, node: decode_number(node),
    "float": lambda decode, node: decode_number(node),
    "complex": Decoder.number,
    "bytes": Decoder.content,
    "bytearray": lambda decode, node: bytearray(decode.content(node)),
    "range": lambda decode, node: range(*decode(node["bounds"])),
}

"""JSON from a file that nobody vouches for: every access checks the type."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ckptcheck.errors import StoreError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object whose fields are read by type; StoreError says where another type was found.

    `where` is the place in words, beginning with the file's path.
    """

    values: dict[str, Any]
    where: str

    def _at(self, key: str) -> str:
        # A name from a file must not reach a terminal raw.
        return f"{self.where}, {key if key.isprintable() else repr(key)}"

    def any(self, key: str) -> Any:
        """The field as it is."""
        if key not in self.values:
            raise StoreError(f"{self.where}: the field {key!r} is missing: the file is damaged")
        return self.values[key]

    def text(self, key: str) -> str:
        """A string."""
        return _of_type(str, self.any(key), self._at(key))

    def integer(self, key: str) -> int:
        """An integer that is not negative."""
        return _size(self.any(key), self._at(key))

    def flag(self, key: str) -> bool:
        """True or false."""
        return _of_type(bool, self.any(key), self._at(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        items = _of_type(list, self.any(key), self._at(key))
        return tuple(_of_type(str, item, self._at(key)) for item in items)

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of integers that are not negative."""
        items = _of_type(list, self.any(key), self._at(key))
        return tuple(_size(item, self._at(key)) for item in items)

    def fields(self, key: str) -> "Fields":
        """An object."""
        return Fields(_of_type(dict, self.any(key), self._at(key)), self._at(key))

    def each(self) -> Iterator[tuple[str, "Fields"]]:
        """Every field, each an object."""
        for key in self.values:
            yield key, self.fields(key)

    def listed(self, key: str) -> list["Fields"]:
        """A list of objects."""
        where = self._at(key)
        items = _of_type(list, self.any(key), where)
        places = [f"{where}[{place}]" for place in range(len(items))]
        return [Fields(_of_type(dict, item, place), place) for item, place in zip(items, places, strict=True)]


def parse(text: str | bytes, where: str) -> Fields:
    """The fields of a JSON object; StoreError for other text, duplicate keys and numbers that are not finite."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused)
    except (ValueError, RecursionError) as trouble:
        raise StoreError(f"{where}: not the JSON that was promised ({trouble}): the file is damaged") from None
    return Fields(_of_type(dict, value, where), where)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} stands twice")
    return unique


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _of_type(kind: type[_T], value: Any, where: str) -> _T:
    if type(value) is not kind:
        raise StoreError(f"{where}: {kind.__name__} was promised, {type(value).__name__} found: the file is damaged")
    return value


def _size(value: Any, where: str) -> int:
    size = _of_type(int, value, where)
    if not 0 <= size < 1 << 62:
        raise StoreError(f"{where}: {size} cannot be a size or a count: the file is damaged")
    return size

"""The part of JSON Schema (draft 2020-12) that the schema of a result uses: the first thing that a document has wrong.

A whole number is one that is written so: 1.0 is none, unlike in the draft. An unknown keyword is a bug of ours.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

_SILENT: Final = frozenset({"$schema", "$id", "$defs", "title", "description", "format"})
_TYPES: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "object": ("an object", (dict,)),
    "array": ("a list", (list,)),
    "string": ("a text", (str,)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "null": ("null", (type(None),)),
}
_SHOWN: Final = 60
"""Characters of a value that does not belong there."""


class Trouble(NamedTuple):
    """What is wrong, and where: keys and places, the innermost last."""

    trail: tuple[str | int, ...]
    said: str

    def within(self, step: str | int) -> "Trouble":
        """Return the same as it is seen from one level further out."""
        return Trouble((step, *self.trail), self.said)


Check: TypeAlias = Callable[[Any], Trouble | None]
Schema: TypeAlias = Mapping[str, Any] | bool
Maker: TypeAlias = Callable[[Schema], Check]


def checker(schema: Mapping[str, Any]) -> Check:
    """Return what tells the first thing in which a plain JSON value does not keep to `schema`, None where it does."""
    known: dict[str, Check] = {}

    def made(part: Schema) -> Check:
        if isinstance(part, bool):
            return partial(_whatever, part)
        makers = dict.fromkeys(_KEYWORDS[word] for word in part if word not in _SILENT and word != "$ref")
        checks = [make(part, made) for make in makers]
        if "$ref" in part:
            checks.insert(0, partial(_referred, known, part["$ref"].removeprefix("#/$defs/")))
        return checks[0] if len(checks) == 1 else partial(_all, checks)

    whole = made(schema)
    known.update((name, made(part)) for name, part in schema.get("$defs", {}).items())
    return whole


def _whatever(allowed: bool, value: Any) -> Trouble | None:
    del value
    return None if allowed else Trouble((), "does not belong there")


def _referred(known: Mapping[str, Check], name: str, value: Any) -> Trouble | None:
    return known[name](value)


def _all(checks: Sequence[Check], value: Any) -> Trouble | None:
    for check in checks:
        if (trouble := check(value)) is not None:
            return trouble
    return None


def _type(part: Mapping[str, Any], made: Maker) -> Check:
    del made
    names = [part["type"]] if isinstance(part["type"], str) else part["type"]
    types = tuple(kind for name in names for kind in _TYPES[name][1])
    said = f"must be {' or '.join(_TYPES[name][0] for name in names)}"

    def check(value: Any) -> Trouble | None:
        good = bool in types if isinstance(value, bool) else isinstance(value, types)
        return None if good else Trouble((), f"{said}, and is {_shown(value)}")

    return check


def _enum(part: Mapping[str, Any], made: Maker) -> Check:
    del made
    words = part["enum"] if "enum" in part else [part["const"]]
    said = f"must be {'one of ' * (len(words) > 1)}{', '.join(map(_shown, words))}"

    def check(value: Any) -> Trouble | None:
        good = any(type(value) is type(one) and value == one for one in words)
        return None if good else Trouble((), f"{said}, and is {_shown(value)}")

    return check


def _text(part: Mapping[str, Any], made: Maker) -> Check:
    """`pattern` and `minLength`; its `$` is the end, and not before a last line break."""
    del made
    pattern, least = re.compile(re.sub(r"\$$", r"\\Z", part.get("pattern", ""))), part.get("minLength", 0)

    def check(value: Any) -> Trouble | None:
        if not isinstance(value, str) or (len(value) >= least and pattern.search(value)):
            return None
        return Trouble((), f"is {_shown(value)}, which is not of the form that belongs there")

    return check


def _least(part: Mapping[str, Any], made: Maker) -> Check:
    del made
    least = part["minimum"]

    def check(value: Any) -> Trouble | None:
        good = isinstance(value, bool) or not isinstance(value, int | float) or value >= least
        return None if good else Trouble((), f"must be {least} or more, and is {_shown(value)}")

    return check


def _items(part: Mapping[str, Any], made: Maker) -> Check:
    check_one, least = made(part.get("items", True)), part.get("minItems", 0)

    def check(value: Any) -> Trouble | None:
        if not isinstance(value, list):
            return None
        if len(value) < least:
            return Trouble((), "is empty")
        for place, one in enumerate(value):
            if (trouble := check_one(one)) is not None:
                return trouble.within(place)
        return None

    return check


def _object(part: Mapping[str, Any], made: Maker) -> Check:
    own = {name: made(one) for name, one in part.get("properties", {}).items()}
    other, required = made(part.get("additionalProperties", True)), part.get("required", ())

    def check(value: Any) -> Trouble | None:
        if not isinstance(value, dict):
            return None
        for name in required:
            if name not in value:
                return Trouble((), f"has no {name}")
        for name, one in value.items():
            if (trouble := own.get(name, other)(one)) is not None:
                return trouble.within(name)
        return None

    return check


def _any(part: Mapping[str, Any], made: Maker) -> Check:
    """What is wrong by the way that a value comes furthest on."""
    ways = [made(one) for one in part["anyOf"]]

    def check(value: Any) -> Trouble | None:
        troubles = []
        for way in ways:
            if (trouble := way(value)) is None:
                return None
            troubles.append(trouble)
        return max(troubles, key=lambda one: len(one.trail))

    return check


def _all_of(part: Mapping[str, Any], made: Maker) -> Check:
    return partial(_all, [made(one) for one in part["allOf"]])


def _if(part: Mapping[str, Any], made: Maker) -> Check:
    condition, then, otherwise = (made(part.get(word, True)) for word in ("if", "then", "else"))
    return lambda value: then(value) if condition(value) is None else otherwise(value)


def _shown(value: Any) -> str:
    """A value in short; what is in a list or an object is left out."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    said = repr(value) if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else _digits(value)
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}..."


def _digits(value: int) -> str:
    return str(value) if value.bit_length() < 200 else "a number of many digits"


_KEYWORDS: Final[Mapping[str, Callable[[Mapping[str, Any], Maker], Check]]] = {
    "type": _type,
    "enum": _enum,
    "const": _enum,
    "pattern": _text,
    "minLength": _text,
    "minimum": _least,
    "items": _items,
    "minItems": _items,
    "properties": _object,
    "required": _object,
    "additionalProperties": _object,
    "anyOf": _any,
    "allOf": _all_of,
    "if": _if,
    "then": _if,
    "else": _if,
}
"""Keyword to what makes its check; keywords that belong together have one."""

"""Plain values by the ten thousand, taken as one: a log, a data order, a sampler's queue."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from ckptcheck.conventions.words import array_text, full_text, is_array, plain_key, word_of
from ckptcheck.state.digest import PLAIN_DIGEST, Digest
from ckptcheck.state.raw import MAX_UNFOLDED_DEPTH, Foreign, Named, Raw, RawTensor
from ckptcheck.state.tree import MAX_SPLIT, canonical, is_long_plain

MAX_LEAVES: Final = 4096
"""A tree of more plain values, without a tensor in it, is one value."""
SHOWN: Final = 16
"""Items that are told of a long list."""
_AT_ONCE: Final = 4096
"""Pieces of text, or characters of one, that are enough to be hashed."""
_PLAIN: Final = frozenset({bool, int, float, str, bytes, complex, type(None)})
_EMPTY: Final[dict[type, str]] = {dict: "{}", list: "[]", tuple: "()"}
_TOLD_BY_REPR: Final = frozenset({bool, str, type(None)})
_SHORT: Final = 1 << 1000
_IMPURE: Final = -1


class Bulk:
    """A tree of plain values that counts as one leaf."""

    __slots__ = ("leaves", "value")

    def __init__(self, value: Raw, leaves: int) -> None:
        self.value = value
        self.leaves = leaves


def gathered(tree: Raw) -> Raw:
    """The tree with a `Bulk` for every container with more than `MAX_LEAVES` plain values and no tensor in it.

    The innermost such containers are taken, and each counts as one value of what it stands in. Nothing else changes.
    """
    return _gathered(tree, MAX_UNFOLDED_DEPTH)[0]


def is_bulk(value: Raw) -> bool:
    """Whether a value is more plain values than are listed one by one."""
    return isinstance(gathered(value), Bulk)


def digested(bulk: Bulk) -> tuple[Digest, str]:
    """The digest of a bulk's canonical text, which is never whole in memory, and a short text that stands for it.

    Of a long list of plain values the digest is that of `canonical`. Of a tree, lists and tuples on the way to its
    leaves are alike, as they are in `flatten`, and so are the orders of its keys.
    """
    total = hashlib.blake2b(digest_size=16)
    pieces: list[str] = []
    for piece in _texts(bulk.value, MAX_UNFOLDED_DEPTH):
        pieces.append(piece)
        if len(pieces) >= _AT_ONCE or len(piece) >= _AT_ONCE:
            total.update("".join(pieces).encode("utf-8", "surrogatepass"))
            pieces.clear()
    total.update("".join(pieces).encode("utf-8", "surrogatepass"))
    digest = Digest(PLAIN_DIGEST, total.digest())
    value = bulk.value
    if isinstance(value, list | tuple) and is_long_plain(value):
        first = ", ".join(canonical(one)[:MAX_SPLIT] for one in value[:SHOWN])
        return digest, f"[{first}, ... {len(value)} values, {digest}]"
    kind = "mapping" if isinstance(value, Mapping) else "sequence" if isinstance(value, list | tuple) else "object"
    return digest, f"<{kind} with {bulk.leaves} values, {digest}>"


def _gathered(value: Raw, depth: int) -> tuple[Raw, int]:
    """What stands for a value, and how many leaves it has; `_IMPURE` with a tensor among them."""
    kind = type(value)
    if kind in _PLAIN:
        return value, 1
    if kind is RawTensor:
        return value, 1 if is_array(value) else _IMPURE
    if isinstance(value, Foreign):
        return _gathered_foreign(value, depth)
    if not depth or not isinstance(value, dict | list | tuple) or not value:
        return value, 1
    items = value.values() if isinstance(value, dict) else value
    if _PLAIN.issuperset(map(type, items)):
        if len(value) > MAX_LEAVES:
            return Bulk(value, len(value)), 1
        return value, 1 if len(value) > MAX_SPLIT and not isinstance(value, dict) else len(value)
    return _gathered_container(value, items, depth)


def _gathered_foreign(value: Foreign, depth: int) -> tuple[Raw, int]:
    if not depth or word_of(value) is not None:
        return value, 1 if value.spec is None else _IMPURE
    inner = value.unfold()
    stands, leaves = _gathered(inner, depth - 1)
    if stands is inner or isinstance(stands, Bulk):
        return (value if stands is inner else stands), leaves
    return Foreign(value.class_name, state=stands, spec=value.spec), leaves


def _gathered_container(value: Any, items: Any, depth: int) -> tuple[Raw, int]:
    changed: dict[int, Raw] = {}
    total, is_pure = 0, True
    for place, one in enumerate(items):
        if not one and type(one) in _EMPTY:
            total += 1
            continue
        stands, leaves = _gathered(one, depth - 1)
        if stands is not one:
            changed[place] = stands
        if leaves == _IMPURE:
            is_pure = False
        else:
            total += leaves
    if is_pure and total > MAX_LEAVES:
        return Bulk(value, total), 1
    if changed:
        parts = [changed.get(place, one) for place, one in enumerate(items)]
        value = dict(zip(value, parts, strict=True)) if isinstance(value, dict) else type(value)(parts)
    return value, total if is_pure else _IMPURE


def _texts(value: Raw, depth: int) -> Iterator[str]:
    """The canonical text of a plain tree, piece by piece."""
    if depth and value and isinstance(value, dict):
        yield from _mapping_texts(value, depth - 1)
    elif depth and value and isinstance(value, list | tuple):
        yield from _sequence_texts(value, depth - 1)
    elif depth and isinstance(value, Foreign) and word_of(value) is None:
        yield from _texts(value.unfold(), depth - 1)
    else:
        yield _leaf_text(value)


def _leaf_text(value: Raw) -> str:
    if isinstance(value, RawTensor):
        return array_text(value) or f"<{value.class_name}>"
    if isinstance(value, Foreign):
        word = word_of(value)
        return word.text if word is not None else f"<{value.class_name}>"
    if type(value) in _EMPTY and not value:
        return _EMPTY[type(value)]
    if isinstance(value, set | frozenset) and not _PLAIN.issuperset(map(type, value)):
        return full_text(value)
    return str.__str__(value) if isinstance(value, Named) else canonical(value)


def _mapping_texts(value: Mapping[Any, Raw], depth: int) -> Iterator[str]:
    texts = _plain_texts([plain_key(key) for key in value])
    if _PLAIN.issuperset(map(type, value.values())):
        yield "{" + ", ".join(sorted(map(": ".join, zip(texts, _plain_texts(value.values()), strict=True)))) + "}"
        return
    start = "{"
    for key, item in sorted(zip(texts, value.values(), strict=True), key=lambda pair: pair[0]):
        yield f"{start}{key}: "
        yield from _texts(item, depth)
        start = ", "
    yield "}"


def _sequence_texts(value: list[Raw] | tuple[Raw, ...], depth: int) -> Iterator[str]:
    if len(value) <= MAX_SPLIT or not is_long_plain(value):
        start = "["
        for item in value:
            yield start
            yield from (_texts(item, depth) if item or isinstance(item, Foreign) else (_leaf_text(item),))
            start = ", "
        yield "]"
        return
    start, end = "()" if isinstance(value, tuple) else "[]"
    for at in range(0, len(value), _AT_ONCE):
        yield start + ", ".join(_plain_texts(value[at : at + _AT_ONCE]))
        start = ", "
    yield end


def _plain_texts(values: Collection[Any]) -> Iterable[str]:
    """The canonical text of each of some plain values."""
    kinds = set(map(type, values))
    if kinds <= _TOLD_BY_REPR or (kinds == {int} and max(map(abs, values)) < _SHORT):
        return map(repr, values)
    return map(canonical, values)

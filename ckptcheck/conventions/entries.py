"""Raw values as entries of a training state, equal to what the store makes of the same live values."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from ckptcheck.conventions.bulk import Bulk, digested, gathered
from ckptcheck.conventions.words import Word, array_text, class_text, full_text, plain_key, word_of
from ckptcheck.errors import CheckpointError
from ckptcheck.state.digest import PLAIN_DIGEST, Digest, plain_digest
from ckptcheck.state.raw import MAX_UNFOLDED_DEPTH, Foreign, Named, Queue, Raw, RawTensor, tensors_in
from ckptcheck.state.training_state import Entry
from ckptcheck.state.tree import CLASS, MAXLEN, Beside, canonical, flatten

MAX_LISTED: Final = 200_000
"""Plain values of one tree that are listed one by one; more can only be where tensors stand among them."""

_FLAGS: Final = frozenset({"_is_buffer", "persistent", "_is_hf_initialized"})
"""Attributes of a tensor that are no content: what makes it a buffer, and what a library notes while it builds it."""
_SIMPLE: Final = frozenset({bool, int, float, str, bytes, complex, type(None)})


def entry(leaf: Any) -> Entry:
    """One leaf. A tensor keeps its `ref` and is not read; a plain value has the digest of its canonical text."""
    if isinstance(leaf, Bulk):
        digest, text = digested(leaf)
        return Entry(None, digest, value=text)
    if isinstance(leaf, RawTensor):
        array = array_text(leaf)
        return Entry(leaf.spec, None, ref=leaf) if array is None else _plain(array)
    if isinstance(leaf, Word):
        return _plain(leaf.text)
    text = canonical(leaf)
    is_number = isinstance(leaf, bool | int | float) and abs(leaf) < 2**53
    return Entry(None, Digest(PLAIN_DIGEST, plain_digest(text)), value=leaf if is_number else text)


def entries(tree: Raw, prefix: str = "") -> dict[str, Entry]:
    """Every leaf of a tree by its path; objects of unknown classes are taken apart. An empty tree is one leaf.

    So is a container with more than `bulk.MAX_LEAVES` plain values and no tensor in it: its entry has the digest of
    all of it, so that a difference anywhere in it makes one changed value. CheckpointError where more than `MAX_LISTED`
    plain values are left.
    """
    found: dict[str, Entry] = {}
    values = 0
    for path, leaf in leaves(gathered(tree), prefix):
        one = found[path] = entry(leaf)
        values += one.spec is None
        if values > MAX_LISTED:
            raise CheckpointError(f"{prefix or 'an object'}: has more than {MAX_LISTED} plain values: not read")
    return found


def merge(found: dict[str, Entry], more: Mapping[str, Entry]) -> None:
    """Add entries; where a path is taken, the later one is marked, so that nothing is lost."""
    for path, one in more.items():
        free, count = path, 1
        while free in found:
            count += 1
            free = f"{path} ({count})"
        found[free] = one


def leaves(tree: Raw, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a tree by its path, as `flatten` gives them, with what is beside tensors and objects."""
    return flatten(unfolded(tree), prefix, MAX_UNFOLDED_DEPTH)


def unfolded(value: Raw, depth: int = MAX_UNFOLDED_DEPTH) -> Raw:
    """The value without foreign objects: what they hold in their place, and their class beside it.

    So is what a tensor carries beside it. CheckpointError where that is more than `depth` levels deep.
    """
    if isinstance(value, Foreign):
        return _taken_apart(value, depth)
    if isinstance(value, Named):
        return Word(str.__str__(value))
    if isinstance(value, RawTensor):
        carried = {key: one for key, one in (value.attributes or {}).items() if key not in _FLAGS}
        return Beside(value, {key: unfolded(one, depth - 1) for key, one in carried.items()}) if carried else value
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Mapping | list | tuple) and depth <= 0:
        raise CheckpointError(f"an object: is nested deeper than {MAX_UNFOLDED_DEPTH}: not read")
    if isinstance(value, Mapping):
        return _with_plain_keys([(key, unfolded(item, depth - 1)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return _of_sequence(value, [unfolded(item, depth - 1) for item in value])
    if isinstance(value, set | frozenset) and not _SIMPLE.issuperset(map(type, value)):
        return _of_set(value, depth)
    return value


def _taken_apart(value: Foreign, depth: int) -> Raw:
    word = word_of(value)
    if word is not None:
        return word
    if depth <= 0:
        raise CheckpointError(f"{value.class_name}: is nested deeper than {MAX_UNFOLDED_DEPTH}: not read")
    inner, told = unfolded(value.unfold(), depth - 1), class_text(value)
    return Beside(inner, {CLASS: Word(told)}) if told else inner


def _of_sequence(value: list[Raw] | tuple[Raw, ...], items: list[Raw]) -> Raw:
    if isinstance(value, Queue) and value.maxlen is not None:
        return Beside(items, {MAXLEN: value.maxlen})
    return type(value)(items)


def _with_plain_keys(items: list[tuple[Any, Raw]]) -> dict[Any, Raw]:
    """A dict of these items; where two objects have one text for a key, the later one is marked."""
    found = {plain_key(key): item for key, item in items}
    if len(found) == len(items):
        return found
    found = {}
    for key, item in items:
        plain, count = plain_key(key), 1
        while plain in found:
            count += 1
            plain = f"{plain_key(key)} ({count})"
        found[plain] = item
    return found


def _of_set(value: Collection[Raw], depth: int) -> Raw:
    """A set with objects in it: one text, or where it has tensors a list in the order of their texts."""
    if all(array_text(one) is not None for one in tensors_in(value)):
        return Word(full_text(value))
    return [unfolded(item, depth - 1) for item in sorted(value, key=full_text)]


def _plain(text: str) -> Entry:
    return Entry(None, Digest(PLAIN_DIGEST, plain_digest(text)), value=text)

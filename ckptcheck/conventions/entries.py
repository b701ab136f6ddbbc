"""Raw values as entries of a training state, equal to what the store makes of the same live values."""

from collections.abc import Mapping
from typing import Any, Final

from ckptcheck.state.digest import PLAIN_DIGEST, Digest, plain_digest
from ckptcheck.state.raw import Foreign, Named, Raw, RawTensor
from ckptcheck.state.training_state import Entry
from ckptcheck.state.tree import MAX_DEPTH, canonical, flatten

NUMPY_ARRAY: Final = "numpy.ndarray"
_NUMPY: Final = "numpy."
MAX_ARRAY_BYTES: Final = 1 << 20
"""A numpy array up to this size is read at once and is a plain value, as in the store; a larger one is a tensor."""

_NUMPY_OF: Final = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2", "complex128": "<c16", "complex64": "<c8",
    "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1",
    "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "|u1", "bool": "|b1",
}  # fmt: skip


class Word:
    """A value that is known by its text alone: a dtype, a device, an object without content."""

    def __init__(self, text: str) -> None:
        self.text = text


def entry(leaf: Any) -> Entry:
    """One leaf. A tensor keeps its `ref` and is not read; a plain value has the digest of its canonical text."""
    if isinstance(leaf, RawTensor):
        array = _array_text(leaf)
        return Entry(leaf.spec, None, ref=leaf) if array is None else _plain(array)
    if isinstance(leaf, Word):
        return _plain(leaf.text)
    text = canonical(leaf)
    is_number = isinstance(leaf, bool | int | float) and abs(leaf) < 2**53
    return Entry(None, Digest(PLAIN_DIGEST, plain_digest(text)), value=leaf if is_number else text)


def entries(tree: Raw, prefix: str = "") -> dict[str, Entry]:
    """Every leaf of a tree by its path; objects of unknown classes are taken apart. An empty tree is one leaf."""
    return {path: entry(leaf) for path, leaf in flatten(unfolded(tree), prefix)}


def merge(found: dict[str, Entry], more: Mapping[str, Entry]) -> None:
    """Add entries; where a path is taken, the later one is marked, so that nothing is lost."""
    for path, one in more.items():
        free, count = path, 1
        while free in found:
            count += 1
            free = f"{path} ({count})"
        found[free] = one


def unfolded(value: Raw, depth: int = MAX_DEPTH) -> Raw:
    """The value without foreign objects: what they hold in their place, at most `depth` levels deep."""
    if isinstance(value, Foreign):
        word = _word_of(value)
        if word is not None or not depth:
            return word or Word(f"<{value.class_name}>")
        return unfolded(value.unfold(), depth - 1)
    if isinstance(value, Named):
        return Word(str.__str__(value))
    if not depth or isinstance(value, RawTensor | str | bytes):
        return value
    if isinstance(value, Mapping):
        return {_key(key): unfolded(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(unfolded(item, depth - 1) for item in value)
    if isinstance(value, set | frozenset) and any(isinstance(item, Foreign | RawTensor | Named) for item in value):
        return [unfolded(item, depth - 1) for item in value]
    return value


def _plain(text: str) -> Entry:
    return Entry(None, Digest(PLAIN_DIGEST, plain_digest(text)), value=text)


def _array_text(tensor: RawTensor) -> str | None:
    """The text that `canonical` gives a numpy array or scalar of these bytes; None for what is no small one."""
    if not tensor.class_name.startswith(_NUMPY) or tensor.spec.nbytes > MAX_ARRAY_BYTES:
        return None
    dtype = _NUMPY_OF.get(tensor.spec.dtype)
    kind = "numpy.ndarray" if tensor.class_name == NUMPY_ARRAY else "numpy"
    return dtype and f"{kind}:{dtype}{list(tensor.spec.shape)}:{tensor.fetch().hex()}"


def _key(key: Any) -> Any:
    """A dict's key as plain text where it is an object or the name of one."""
    if isinstance(key, Foreign):
        return key.class_name
    return str.__str__(key) if isinstance(key, Named) else key


def _word_of(value: Foreign) -> Word | None:
    """The text of an object that is one value to its users, as torch itself shows it; None for any other."""
    if value.class_name == "torch.device" and all(isinstance(one, str | int) for one in value.arguments):
        kind, _, index = ":".join(map(str, value.arguments)).partition(":")
        return Word(f"device(type={kind!r}, index={index})" if index else f"device(type={kind!r})")
    if value.arguments or value.state is not None or value.items is not None:
        return None
    if value.spec is not None:
        return Word(f"<{value.class_name} {value.spec}>")
    return Word(value.class_name if value.class_name.startswith("torch.") else f"<{value.class_name}>")

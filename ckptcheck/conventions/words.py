"""Raw values that are one value to their users, as text: dtypes, devices, small numpy arrays, empty objects."""

from collections.abc import Mapping
from typing import Any, Final

from ckptcheck.state.digest import plain_digest
from ckptcheck.state.raw import MAX_RAW_DEPTH, Foreign, Named, Raw, RawTensor
from ckptcheck.state.tree import canonical

NUMPY_ARRAY: Final = "numpy.ndarray"
_NUMPY: Final = "numpy."
MAX_TEXT: Final = 256
"""Characters of an object's text where it is a key."""
_AS_DICT: Final = frozenset({"argparse.Namespace", "types.SimpleNamespace", "collections.UserDict"})
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


def is_array(tensor: RawTensor) -> bool:
    """Whether this is a numpy array or scalar that is small enough to be a plain value."""
    is_small = tensor.class_name.startswith(_NUMPY) and tensor.spec.nbytes <= MAX_ARRAY_BYTES
    return is_small and tensor.spec.dtype in _NUMPY_OF


def is_number(value: Raw) -> bool:
    """Whether this is a number of Python's, or a scalar of numpy's."""
    if isinstance(value, RawTensor):
        return is_array(value) and not value.spec.shape and value.class_name != NUMPY_ARRAY
    return isinstance(value, int | float)


def array_text(tensor: RawTensor) -> str | None:
    """The text that `canonical` gives a numpy array or scalar of these bytes; None for what is no small one."""
    if not is_array(tensor):
        return None
    kind = "numpy.ndarray" if tensor.class_name == NUMPY_ARRAY else "numpy"
    return f"{kind}:{_NUMPY_OF[tensor.spec.dtype]}{list(tensor.spec.shape)}:{tensor.fetch().hex()}"


def plain_key(key: Any) -> Any:
    """A dict's key with plain text for each object, tensor and name of a class in it."""
    if type(key) is str:
        return key
    if isinstance(key, Named):
        return str.__str__(key)
    if isinstance(key, tuple | frozenset):
        return type(key)(plain_key(one) for one in key)
    return full_text(key) if isinstance(key, Foreign | RawTensor) else key


def full_text(value: Raw) -> str:
    """One text for a raw value, objects in it with their classes and contents: a long one is cut to its digest.

    Of tensors, class, dtype and shape alone are told.
    """
    text = _text(value, MAX_RAW_DEPTH)
    if len(text) <= MAX_TEXT:
        return text
    name = value.class_name if isinstance(value, Foreign | RawTensor) else type(value).__name__
    return f"{name}({plain_digest(text).hex()})"


def _text(value: Raw, depth: int) -> str:
    if isinstance(value, RawTensor):
        return array_text(value) or f"<{value.class_name} {value.spec}>"
    if isinstance(value, Named):
        return str.__str__(value)
    if isinstance(value, Foreign) and depth > 0:
        parts = (*value.arguments, *(part for part in (value.state, value.items) if part is not None))
        return f"{value.class_name}({', '.join(_text(one, depth - 1) for one in parts)})" if parts else value.class_name
    if depth > 0 and isinstance(value, Mapping):
        pairs = sorted(f"{_text(key, depth - 1)}: {_text(one, depth - 1)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if depth > 0 and isinstance(value, list | tuple):
        inner = ", ".join(_text(one, depth - 1) for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    if depth > 0 and isinstance(value, set | frozenset):
        return f"set{{{', '.join(sorted(_text(one, depth - 1) for one in value))}}}"
    return canonical(value)


def class_text(value: Foreign) -> str:
    """What is to be told of an object beside its content: its class, and dtype and shape of a tensor of parts.

    "" for classes that other containers write as a plain dict.
    """
    if value.spec is not None:
        return f"{value.class_name} {value.spec}"
    return "" if value.class_name in _AS_DICT else value.class_name


def word_of(value: Foreign) -> Word | None:
    """The text of an object that is one value to its users, as torch itself shows it; None for any other."""
    if value.class_name == "torch.device" and all(isinstance(one, str | int) for one in value.arguments):
        kind, _, index = ":".join(map(str, value.arguments)).partition(":")
        return Word(f"device(type={kind!r}, index={index})" if index else f"device(type={kind!r})")
    if value.arguments or value.state is not None or value.items is not None:
        return None
    if value.spec is not None:
        return Word(f"<{value.class_name} {value.spec}>")
    return Word(value.class_name if value.class_name.startswith("torch.") else f"<{value.class_name}>")

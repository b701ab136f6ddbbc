"""numpy's arrays and scalars in the tagged encoding. numpy is imported only where a value needs it.

    {"$": "array", "dtype": ..., "shape": [...], "fortran": bool, "blob": [ROLE, KEY]}
    {"$": "scalar", "dtype": ..., "hex": "..."}

`dtype` is numpy's own text, or for a structured dtype its description in the tagged encoding.
"""

from collections.abc import Callable
from typing import Any

from ckptcheck.errors import StoreError
from ckptcheck.store.encoding import Encoder
from ckptcheck.store.manifest import Encoded


def is_numpy(value: Any) -> bool:
    """Whether this is an array or scalar of numpy's own, without importing numpy."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype") and hasattr(value, "tobytes")


def encode(value: Any, path: str, encoder: Encoder, blob: Callable[[bytes, str], tuple[str, str]]) -> Encoded:
    """An array or scalar; StoreError for subclasses of arrays and for arrays of Python objects."""
    import numpy as np

    if value.dtype.hasobject:
        raise StoreError(f"{path}: a numpy value of Python objects cannot be saved without pickle: save a list")
    dtype = encoder(value.dtype.descr if value.dtype.fields else value.dtype.str, path)
    if isinstance(value, np.generic):
        return {"$": "scalar", "dtype": dtype, "hex": value.tobytes().hex()}
    if type(value) is not np.ndarray:
        raise StoreError(f"{path}: a {type(value).__name__} cannot be saved: save a plain numpy array in its place")
    fortran = value.flags.f_contiguous and not value.flags.c_contiguous
    content = value.tobytes("F" if fortran else "C")
    return {"$": "array", "dtype": dtype, "shape": list(value.shape), "fortran": fortran, "blob": blob(content, path)}


def decode(node: dict[str, Any], decoder: Callable[[Encoded], Any], blob: Callable[[Encoded], bytes]) -> Any:
    """The array, in fresh writable memory, or the scalar; ImportError without numpy, ValueError for a bad node."""
    import numpy as np

    dtype = np.dtype(decoder(node["dtype"]))
    if node["$"] == "scalar":
        return np.frombuffer(bytes.fromhex(node["hex"]), dtype=dtype)[0]
    content = bytearray(blob(node["blob"]))
    shape = tuple(node["shape"])
    flat = np.frombuffer(content, dtype=dtype) if content else np.empty(shape, dtype)
    return flat.reshape(shape, order="F" if node["fortran"] else "C")

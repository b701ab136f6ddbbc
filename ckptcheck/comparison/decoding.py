"""Bytes of a tensor as numpy arrays: raw bits by element width, and values as float64."""

from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec

Bits = NDArray[Any]
"""One-dimensional, unsigned, little-endian, as wide as an element."""
Doubles = NDArray[np.float64]

FLOAT4: Final = "float4_e2m1fn"
"""One of the two values in an element of float4_e2m1fn_x2; no tensor has this dtype of its own."""
COMPONENTS: Final = {
    "complex128": "float64",
    "complex64": "float32",
    "complex32": "float16",
    "float4_e2m1fn_x2": FLOAT4,
}
"""The dtype of the two parts of an element: a complex one's real and imaginary part, which lie interleaved, and the
low and the high four bits of a byte."""
FLOAT8: Final = {
    "float8_e4m3fn": (3, 7),
    "float8_e5m2": (2, 15),
    "float8_e4m3fnuz": (3, 8),
    "float8_e5m2fnuz": (2, 16),
    "float8_e8m0fnu": (0, 127),
}
"""(mantissa bits, exponent bias); OCP 8-bit floating point specification 1.0, OCP MX 1.0 for e8m0, and for
the fnuz forms Noune et al., arXiv:2206.02915."""
FLOATS: Final = frozenset({"float64", "float32", "float16", "bfloat16", *FLOAT8, FLOAT4})

_MINIFLOATS: Final = {**FLOAT8, FLOAT4: (1, 1)}
"""FLOAT8, and the four bits of e2m1 (OCP MX 1.0) spread over a byte as `_nibbles` does."""
_FINITE_ONLY: Final = frozenset({FLOAT4})

_NUMPY: Final = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2",
    "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "i1",
    "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "u1", "bool": "u1",
    "qint32": "<i4", "qint8": "i1", "quint8": "u1",
}  # fmt: skip


def by_component(spec: TensorSpec) -> TensorSpec:
    """The spec with elements of two parts taken apart as `torch.view_as_real` does: shape (..., 2), their dtype."""
    part = COMPONENTS.get(spec.dtype)
    return spec if part is None else TensorSpec(part, (*spec.shape, 2))


def bits_of(buffer: memoryview, spec: TensorSpec) -> Bits:
    """The elements' raw bits, shape (numel,), a view of the buffer where it can be; `spec` as of `by_component`.

    Raises ValueError where the dtype is not known or the buffer is not as long as the spec says.
    """
    needed = spec.numel // 2 if spec.dtype == FLOAT4 else spec.nbytes
    if buffer.nbytes != needed and is_known(spec.dtype):
        raise ValueError(f"{spec} takes {needed} bytes, the buffer holds {buffer.nbytes}")
    return bits_in(buffer, spec.dtype)


def is_known(dtype: str) -> bool:
    """Whether elements (or parts) of this dtype have a size and values that we know."""
    return dtype in ITEMSIZE_BYTES or dtype == FLOAT4


def bits_in(buffer: memoryview, dtype: str) -> Bits:
    """The raw bits of as many elements as the buffer holds; ValueError where the dtype is not known."""
    if not is_known(dtype):
        raise ValueError(f"elements of dtype {dtype} cannot be compared: their size is not known")
    width = ITEMSIZE_BYTES.get(dtype, 1)
    if not buffer.nbytes:
        return np.empty(0, f"<u{width}")
    bits = np.frombuffer(buffer, f"<u{width}")
    return _nibbles(bits) if dtype == FLOAT4 else bits


def _nibbles(pairs: Bits) -> Bits:
    """Two bytes for one, the low four bits first: the sign bit moved to the top, where every other float has it."""
    parts = np.empty((len(pairs), 2), np.uint8)
    np.bitwise_and(pairs, 0xF, out=parts[:, 0])
    np.right_shift(pairs, 4, out=parts[:, 1])
    flat = parts.reshape(-1)
    return ((flat & 8) << 4) | (flat & 7)


def decode(bits: Bits, dtype: str, out: Doubles) -> Doubles:
    """Write the elements' values to `out`, shape as `bits`, and return it.

    Exact for every dtype but int64 and uint64, whose values beyond 2**53 are rounded to nearest.
    """
    native = _NUMPY.get(dtype)
    if native is not None:
        np.copyto(out, bits.view(native))
    elif dtype == "bfloat16":
        wide = bits.astype("<u4")
        wide <<= 16
        np.copyto(out, wide.view("<f4"))
    else:
        np.take(_small_values(dtype), bits, out=out, mode="clip")
    return out


@cache
def _small_values(dtype: str) -> Doubles:
    """The value of each of the 256 bytes."""
    mantissa_bits, bias = _MINIFLOATS[dtype]
    byte = np.arange(256)
    values: Doubles
    if dtype == "float8_e8m0fnu":
        values = np.where(byte == 0xFF, np.nan, np.ldexp(1.0, byte - bias))
        return values
    magnitude = byte & 0x7F
    exponent, fraction = magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1)
    significand = np.where(exponent > 0, fraction + (1 << mantissa_bits), fraction)
    values = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)
    if dtype.endswith("fnuz"):
        values[0x80] = np.nan
    elif dtype == "float8_e5m2":
        values[magnitude == 0x7C] = np.inf
        values[magnitude > 0x7C] = np.nan
    elif dtype not in _FINITE_ONLY:
        values[magnitude == 0x7F] = np.nan
    np.negative(values, out=values, where=byte >= 0x80)
    return values

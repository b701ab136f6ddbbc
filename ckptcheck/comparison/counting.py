"""What the elements of floating tensors are, counted block by block on their bits. Needs numpy.

Bits of floats, read as unsigned integers without the sign, are in the order of their magnitudes, and all that is not
finite lies above them: four passes over integers tell everything, for every width, and no conversion is needed.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckptcheck.comparison.decoding import COMPONENTS, FLOAT8, Bits, bits_in, decode
from ckptcheck.state.tensor import ITEMSIZE_BYTES

BLOCK_BYTES: Final = 1 << 18
"""Counted at once, so that it stays in the processor's cache."""
_WIDE: Final = {"float64": 0x7FF0 << 48, "float32": 0x7F80 << 16, "float16": 0x7C00, "bfloat16": 0x7F80}
"""The bits of infinity."""
_BYTES: Final = frozenset(FLOAT8)


def part_dtype(dtype: str) -> str | None:
    """The dtype that the elements of a floating tensor are counted in, of a complex one that of its parts.

    None for a dtype that is not counted: integers, and floats of less than a byte.
    """
    part = COMPONENTS.get(dtype, dtype)
    return part if part in _WIDE or part in _BYTES else None


@dataclass(slots=True)
class Count:
    """Running counts of a tensor's elements; `first`, `first_negative` are flat indices, `top` is `largest`'s value."""

    numel: int = 0
    nan: int = 0
    inf: int = 0
    minus_inf: int = 0
    negative: int = 0
    zeros: int = 0
    first: int | None = None
    first_negative: int | None = None
    largest: float = 0.0

    def add(self, other: "Count", offset: int = 0) -> None:
        """Count another part of the same tensor, whose indices begin at `offset`."""
        self.numel += other.numel
        self.nan += other.nan
        self.inf += other.inf
        self.minus_inf += other.minus_inf
        self.negative += other.negative
        self.zeros += other.zeros
        self.first = _earlier(self.first, other.first, offset)
        self.first_negative = _earlier(self.first_negative, other.first_negative, offset)
        self.largest = max(self.largest, other.largest)


def _earlier(known: int | None, found: int | None, offset: int) -> int | None:
    if found is None:
        return known
    return found + offset if known is None else min(known, found + offset)


def counted(buffer: memoryview, dtype: str) -> Iterator[tuple[int, Count]]:
    """Index of the first element and counts of each block of a buffer that holds whole parts of `dtype`."""
    width = ITEMSIZE_BYTES[dtype]
    for at in range(0, len(buffer), BLOCK_BYTES):
        bits = bits_in(buffer[at : at + BLOCK_BYTES], dtype)
        yield at // width, (_count_bytes(bits, dtype) if dtype in _BYTES else _count_wide(bits, dtype))


class _Scratch(threading.local):
    """Arrays of one thread that every block is written to."""

    def __init__(self) -> None:
        self._magnitude = np.empty(BLOCK_BYTES, np.uint8)
        self._flags = np.empty(BLOCK_BYTES // 2, np.bool_)

    def magnitude(self, bits: Bits) -> Bits:
        """Room for as many elements."""
        return self._magnitude[: bits.nbytes].view(bits.dtype)

    def flags(self, numel: int) -> NDArray[np.bool_]:
        """Room for as many elements."""
        return self._flags[:numel]


_SCRATCH: Final = _Scratch()


def _count_wide(bits: Bits, dtype: str) -> Count:
    sign, infinity = 1 << (8 * bits.itemsize - 1), _WIDE[dtype]
    magnitude = np.bitwise_and(bits, sign - 1, out=_SCRATCH.magnitude(bits))
    top = int(magnitude.max())
    below = np.greater(bits, sign, out=_SCRATCH.flags(len(bits)))  # -0.0 is the sign alone
    found = Count(len(bits), zeros=len(bits) - int(np.count_nonzero(magnitude)))
    if top >= infinity:
        top = _count_odd(found, bits, magnitude, below, infinity)
    found.negative = int(np.count_nonzero(below))
    if found.negative:
        found.first_negative = int(below.argmax())
    found.largest = _value(top, bits.dtype, dtype)
    return found


def _count_odd(found: Count, bits: Bits, magnitude: Bits, below: NDArray[np.bool_], infinity: int) -> int:
    """Count what is not finite, take NaNs out of what is below zero, and return the bits of the largest finite."""
    is_nan = magnitude > infinity
    odd = magnitude >= infinity
    below &= ~is_nan
    found.nan = int(np.count_nonzero(is_nan))
    found.inf = int(np.count_nonzero(bits == infinity))
    found.minus_inf = int(np.count_nonzero(odd)) - found.nan - found.inf
    found.first = int(odd.argmax())
    magnitude[odd] = 0
    return int(magnitude.max())


def _value(bits: int, width: Any, dtype: str) -> float:
    return float(decode(np.array([bits], width), dtype, np.empty(1))[0]) if bits else 0.0


def _count_bytes(bits: Bits, dtype: str) -> Count:
    kinds = _kinds(dtype)
    times = np.bincount(bits, minlength=256)
    found = Count(
        len(bits), *(int(times[kinds[name]].sum()) for name in ("nan", "inf", "minus_inf", "negative", "zeros"))
    )
    if found.nan + found.inf + found.minus_inf:
        found.first = int((kinds["nan"] | kinds["inf"] | kinds["minus_inf"])[bits].argmax())
    if found.negative:
        found.first_negative = int(kinds["negative"][bits].argmax())
    held = kinds["finite"] & (times > 0)
    if held.any():
        found.largest = float(np.abs(_values(dtype)[held]).max())
    return found


@cache
def _values(dtype: str) -> NDArray[np.float64]:
    return decode(np.arange(256, dtype=np.uint8), dtype, np.empty(256))


@cache
def _kinds(dtype: str) -> dict[str, NDArray[np.bool_]]:
    values = _values(dtype)
    return {
        "nan": np.isnan(values),
        "inf": values == np.inf,
        "minus_inf": values == -np.inf,
        "negative": values < 0,
        "zeros": values == 0,
        "finite": np.isfinite(values),
    }


@dataclass(slots=True)
class Lost:
    """Elements where one tensor is zero and another is not: how many, the first one's index, the largest magnitude."""

    count: int = 0
    first: int | None = None
    largest: float = 0.0

    def add(self, zero: memoryview, other: memoryview, dtypes: tuple[str, str], start: int) -> None:
        """Look at a block of whole parts of both tensors, from part `start` on; `dtypes` are those of the parts."""
        sides = [bits_in(buffer, dtype) for buffer, dtype in zip((zero, other), dtypes, strict=True)]
        values = [decode(bits, dtype, np.empty(len(bits))) for bits, dtype in zip(sides, dtypes, strict=True)]
        lost = (values[0] == 0) & (values[1] != 0) & np.isfinite(values[1])
        found = int(np.count_nonzero(lost))
        if found:
            self.count += found
            self.first = _earlier(self.first, int(lost.argmax()), start)
            self.largest = max(self.largest, float(np.abs(values[1][lost]).max()))

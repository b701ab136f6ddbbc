"""Rounding to a narrower dtype and back, as torch casts: to nearest, ties to even."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckptcheck.comparison.decoding import FLOATS, Doubles
from ckptcheck.state.tensor import ITEMSIZE_BYTES

Singles = NDArray[np.float32]

NARROW: Final = {"float8_e5m2": 2, "float8_e4m3fn": 3, "bfloat16": 7, "float16": 10, "float32": 23}
"""Mantissa bits of the dtypes that a tensor may have been rounded through, the narrowest first."""

_OVERFLOWS: Final = {"float8_e4m3fn": (True, False)}
"""torch 2.13 saturates where older versions give NaN: both are its rounding."""
_FLOAT8_RANGES: Final = {"float8_e5m2": (2.0**-14, 57344.0, math.inf), "float8_e4m3fn": (2.0**-6, 448.0, math.nan)}
"""The least normal number, the greatest finite one, and what comes after it."""
_FLOAT64_MANTISSA: Final = 52
_FLOAT32_MANTISSA: Final = 23


class RoundedThrough:
    """Finds the narrowest dtype through which every element of right is left's element, rounded, so far."""

    def __init__(self, left_dtype: str, right_dtype: str) -> None:
        self._right_dtype = right_dtype
        known = {left_dtype, right_dtype} <= {"float64", *NARROW} and ITEMSIZE_BYTES[left_dtype] > 1
        widest = ITEMSIZE_BYTES[left_dtype] if known else 0
        self._alive = [name for name in NARROW if name != left_dtype and ITEMSIZE_BYTES[name] <= widest]

    @property
    def narrowest(self) -> str | None:
        """The narrowest dtype that every element agrees with, or None."""
        return self._alive[0] if self._alive else None

    def add(self, left: Doubles, right: Doubles) -> None:
        """Strike out the dtypes that one of these elements, of the same shape, speaks against."""
        if not self._alive:
            return
        # Rounded numbers leave their low bits clear: one reduction rules nearly every dtype out.
        numbers = ~np.isnan(right)
        bits = right.view(np.uint64)
        used = int(np.bitwise_or.reduce(bits if numbers.all() else bits[numbers]))
        self._alive = [
            name
            for name in self._alive
            if not used & ((1 << (_FLOAT64_MANTISSA - NARROW[name])) - 1) and self._agrees(left, right, name)
        ]

    def _agrees(self, left: Doubles, right: Doubles, name: str) -> bool:
        # torch casts float64 through float32, so the double rounding is wanted.
        singles = left.astype(np.float32)
        return any(self._is(round_to(singles, name, saturate), right) for saturate in _OVERFLOWS.get(name, (True,)))

    def _is(self, narrowed: Singles, right: Doubles) -> bool:
        expected = round_to(narrowed, self._right_dtype).astype(np.float64)
        return bool(np.all(_same(expected, right)))


class EqualAfterCast:
    """Whether every element of both sides, rounded to one dtype, is the same; NaN is NaN, zeros keep their sign."""

    def __init__(self, dtypes: tuple[str, str], cast: str) -> None:
        """`dtypes` are left's and right's, `cast` is float64 or a key of `NARROW`."""
        self._cast = cast
        self.holds = set(dtypes) <= FLOATS
        """So far; False from the start unless both sides are floats."""

    def add(self, left: Doubles, right: Doubles) -> None:
        """Take up elements of both sides, of one shape."""
        if self.holds:
            self.holds = bool(np.all(_same(self._rounded(left), self._rounded(right))))

    def _rounded(self, values: Doubles) -> Doubles:
        return values if self._cast == "float64" else round_to(values.astype(np.float32), self._cast).astype(np.float64)


def _same(left: Doubles, right: Doubles) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = left.view(np.uint64) == right.view(np.uint64)
    return same | (np.isnan(left) & np.isnan(right))


def round_to(values: Singles, dtype: str, saturate: bool = True) -> Singles:
    """Values rounded to `dtype` and back to float32, same shape; a dtype as wide as float32 changes nothing.

    `dtype` is float64 or a key of `NARROW`, else KeyError. Overflow gives infinity; in float8_e4m3fn, which
    has none, the greatest number, or NaN unless `saturate`. An infinity overflows too.
    """
    if dtype in ("float64", "float32"):
        return values
    if dtype == "float16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        return _round_mantissa(values, NARROW[dtype])
    least, most, beyond = _FLOAT8_RANGES[dtype]
    normal = _round_mantissa(values, NARROW[dtype])
    subnormal = _round_to_multiple(values, least / 2 ** NARROW[dtype])
    rounded = np.where(np.abs(values) < least, subnormal, normal)
    overflow = most if saturate and math.isnan(beyond) else beyond
    return np.where(np.abs(rounded) > most, np.copysign(np.float32(overflow), values), rounded)


def _round_mantissa(values: Singles, mantissa_bits: int) -> Singles:
    """Round the mantissa on the bits: a carry moves into the exponent, and past the greatest into infinity."""
    dropped = _FLOAT32_MANTISSA - mantissa_bits
    bits: NDArray[Any] = values.view(np.uint32)
    last = (bits >> dropped) & 1
    rounded = (bits + ((1 << (dropped - 1)) - 1) + last) & np.uint32(0xFFFFFFFF ^ ((1 << dropped) - 1))
    kept: Singles = np.where(np.isnan(values), values, rounded.view(np.float32))
    return kept


def _round_to_multiple(values: Singles, quantum: float) -> Singles:
    """Round to a multiple of a power of two, for magnitudes below 2**22 of it; the sign of zero stays."""
    # Added to a number whose last bit weighs one quantum, float32 arithmetic itself rounds to nearest even.
    anchor = np.float32(1.5 * 2.0**_FLOAT32_MANTISSA * quantum)
    rounded: Singles = np.copysign((values + anchor) - anchor, values)
    return rounded

"""How many representable numbers two floats lie apart (ULP), with the greatest and the median kept."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ckptcheck.comparison.decoding import Bits

_MANTISSA_BITS: Final = 7
"""The histogram keeps the leading 8 bits of a distance: exact below 256, within 1/128 above."""
_SHIFT: Final = 23 - _MANTISSA_BITS
_BUCKETS: Final = 66 << _MANTISSA_BITS
"""Distances reach 2**64, float32's exponent of which is 65 once 1 is moved to exponent 1."""
_TO_EXPONENT_1: Final = np.float32(2.0**-126)


class UlpDistances:
    """Greatest and median distance over the elements whose bytes differ.

    The distance is |a - b| on the ordered integers of the dtype's own bits: sign and magnitude, so that
    0.0 and -0.0 are 0 apart and the greatest finite number 1 from infinity (Dawson, "Comparing Floating
    Point Numbers, 2012 Edition"). NaN has no place in that order: leave such elements out.
    """

    def __init__(self, dtype: str, longest: int) -> None:
        """`longest` is the greatest number of elements that one `add` brings."""
        self._scratch = [np.empty(longest, np.uint64) for _ in range(3)]
        self._logarithms = np.empty(longest, np.float32)
        self._unsigned = dtype == "float8_e8m0fnu"
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._differing = 0
        self._greatest = 0

    def add(self, left: Bits, right: Bits, differing: int, crosses: bool) -> None:
        """Count elements of one shape, `differing` of which differ in their bits; `crosses` as in a `Block`."""
        if not differing:
            return
        distances = self._distances(left, right, crosses)
        self._greatest = max(self._greatest, int(distances.max()))
        # A float32 has the distance's logarithm in its leading bits, so shifting makes the bucket.
        logarithms = self._logarithms[: len(left)]
        np.multiply(distances, _TO_EXPONENT_1, out=logarithms, casting="unsafe", dtype=np.float32)
        buckets = logarithms.view(np.int32)
        buckets >>= _SHIFT
        counts = np.bincount(buckets)
        counts[0] -= len(left) - differing
        self._counts[: len(counts)] += counts
        self._differing += differing

    @property
    def greatest(self) -> int | None:
        """The greatest distance, exact; None where no element was counted."""
        return self._greatest if self._differing else None

    @property
    def median(self) -> int | None:
        """The lower median, exact below 256 and above that within 1 %; None where no element was counted."""
        if not self._differing:
            return None
        ranks = np.cumsum(self._counts)
        bucket = int(np.searchsorted(ranks, (self._differing + 1) // 2))
        edge = np.array([bucket << _SHIFT], np.int32).view(np.float32)[0] / np.float64(_TO_EXPONENT_1)
        return min(int(edge), self._greatest)

    @property
    def by_powers_of_two(self) -> tuple[int, ...]:
        """How many elements are 0 apart, 1, 2 to 3, 4 to 7, ... as far as any is; empty where none was counted."""
        counts = self._counts.reshape(-1, 1 << _MANTISSA_BITS).sum(axis=1)
        return tuple(counts[: int(np.flatnonzero(counts)[-1]) + 1].tolist()) if self._differing else ()

    def _distances(self, left: Bits, right: Bits, crosses: bool) -> NDArray[Any]:
        """|a - b| on the ordered integers, unsigned and as wide as the bits; never overflows."""
        if self._unsigned:
            # Exponents alone, without a sign bit: a wider zero sign makes them like the others.
            left, right = left.astype(np.uint16), right.astype(np.uint16)
        unsigned, signed = left.dtype, f"<i{left.itemsize}"
        sign = unsigned.type(1 << (8 * unsigned.itemsize - 1))
        distances, across, chosen = (row.view(unsigned)[: len(left)] for row in self._scratch)
        # Of one sign, the bits differ by |a - b|; of two, they add up to |a - b| and one sign bit.
        np.subtract(left.view(signed), right.view(signed), out=distances.view(signed))
        np.abs(distances.view(signed), out=distances.view(signed))
        if not crosses:
            return distances
        np.bitwise_xor(np.add(left, right, out=across), sign, out=across)
        np.bitwise_xor(left, right, out=chosen)
        np.right_shift(chosen.view(signed), 8 * unsigned.itemsize - 1, out=chosen.view(signed))
        # Without branches, for signs that differ at random: all ones in `chosen` take `across`.
        across ^= distances
        across &= chosen
        distances ^= across
        return distances

"""The sums and extremes of a comparison, taken up block by block."""

import math
from typing import Final

import numpy as np

from ckptcheck.comparison.blocks import Block
from ckptcheck.comparison.decoding import Doubles

_RUN: Final = 8192
"""Longer dot products are split, since BLAS would start threads for them and the sum depend on their number."""
_PLAIN_LEAST: Final = 1e-200
_PLAIN_MOST: Final = 1e200


class SquareSum:
    """A sum of squares that neither overflows nor underflows: mantissa * 4**exponent, in float64."""

    def __init__(self) -> None:
        self._mantissa = 0.0
        self._exponent = 0

    @property
    def is_zero(self) -> bool:
        """Whether every number so far was zero."""
        return self._mantissa == 0.0

    def add(self, values: Doubles, exponent: int = 0) -> None:
        """Add the squares of values * 2**exponent, shape (n,); infinities and NaN are left out."""
        plain = _squares(values)
        if _PLAIN_LEAST <= plain <= _PLAIN_MOST:
            self._add(plain, exponent)
            return
        values = values[np.isfinite(values)]
        greatest = float(np.abs(values).max(initial=0.0))
        if greatest:
            own = math.frexp(greatest)[1]
            self._add(_squares(np.ldexp(values, -own)), exponent + own)

    def root_ratio(self, other: "SquareSum") -> float:
        """sqrt(self / other); infinite only where float64 cannot hold it. ZeroDivisionError where other is zero."""
        try:
            ratio = math.sqrt(self._mantissa) / math.sqrt(other._mantissa)
            return math.ldexp(ratio, self._exponent - other._exponent)
        except OverflowError:
            return math.inf

    def _add(self, mantissa: float, exponent: int) -> None:
        if self.is_zero:
            self._mantissa, self._exponent = mantissa, exponent
            return
        top = max(self._exponent, exponent)
        kept = math.ldexp(self._mantissa, 2 * (self._exponent - top))
        self._mantissa, self._exponent = kept + math.ldexp(mantissa, 2 * (exponent - top)), top


def _squares(values: Doubles) -> float:
    runs = (values[start : start + _RUN] for start in range(0, len(values), _RUN))
    return sum(float(np.dot(run, run)) for run in runs)


class Accumulator:
    """Counts and extremes of right - left, block by block; positions count elements from 0."""

    def __init__(self) -> None:
        self.differing = 0
        self.first_at: int | None = None
        self.greatest_at: int | None = None
        self.signed_zeros = self.sign_flips = self.nan = self.nan_payloads = self.inf = 0
        self._greatest = 0.0
        self._numbers_differing = 0
        self._left_squares, self._squares = SquareSum(), SquareSum()
        self._infinitely_apart = False

    def add(self, block: Block) -> None:
        """Take up one block; `block.gap` is overwritten with 0 where it is not a number."""
        differing = block.differing
        if not differing:
            self._left_squares.add(block.left)
            return
        if self.first_at is None:
            self.first_at = block.start + int(block.unequal.argmax())
        self.differing += differing
        numbers, greatest = differing, block.greatest
        if math.isfinite(greatest):
            self._left_squares.add(block.left)
            self._squares.add(block.gap)
        else:
            numbers = differing - self._set_apart(block)
            greatest = float(block.gap.max())
        if greatest > self._greatest:
            self._greatest = greatest
            self.greatest_at = block.start + int(block.gap.argmax())
        self._numbers_differing += numbers
        if block.crosses:
            self._count_signs(block, numbers)

    @property
    def max_abs(self) -> float | None:
        """The greatest |right - left|, or None where NaN stands in every differing pair."""
        return self._greatest if self._numbers_differing or not self.differing else None

    @property
    def rel_l2(self) -> float | None:
        """The norm of the difference over that of left, or None where left holds no finite number but zero."""
        if self._left_squares.is_zero:
            return None
        return math.inf if self._infinitely_apart else self._squares.root_ratio(self._left_squares)

    def _count_signs(self, block: Block, numbers: int) -> None:
        # Bytes that differ without a difference in value: only zeros of two signs do that.
        self.signed_zeros += numbers - int(np.count_nonzero(block.gap != 0.0))
        opposite = ((block.left < 0) & (block.right > 0)) | ((block.left > 0) & (block.right < 0))
        self.sign_flips += int(np.count_nonzero(opposite))

    def _set_apart(self, block: Block) -> int:
        """Sort out a block with NaN, infinities or an overflow; returns how many differing pairs hold a NaN."""
        left, right, gap = block.left, block.right, block.gap
        left_nan, right_nan, left_inf, right_inf = np.isnan(left), np.isnan(right), np.isinf(left), np.isinf(right)
        nans = left_nan | right_nan
        self.nan += int(np.count_nonzero(left_nan ^ right_nan))
        self.nan_payloads += int(np.count_nonzero(left_nan & right_nan & block.unequal))
        self.inf += int(np.count_nonzero(left_inf ^ right_inf))
        gap[nans | (left == right)] = 0.0  # an infinity less itself is NaN too
        infinite = left_inf | right_inf
        self._infinitely_apart |= bool(np.any(infinite & (gap != 0.0)))
        self._left_squares.add(left[~(nans | left_inf)])
        finite = ~(nans | infinite)
        left, right, gap = left[finite], right[finite], gap[finite]
        if np.all(np.isfinite(gap)):
            self._squares.add(gap)
        else:
            self._squares.add(right / 4 - left / 4, exponent=2)
        return int(np.count_nonzero(nans & block.unequal))

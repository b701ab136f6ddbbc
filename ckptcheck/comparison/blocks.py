"""Two tensors walked side by side in blocks that stay in the processor's cache, through reused arrays."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ckptcheck.comparison.decoding import Bits, Doubles, decode

BLOCK_NUMEL: Final = 65536
"""Elements in a block; with the histogram's, its arrays take 3 MB."""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of elements of both sides; every array has shape (n,) and holds only until the next block.

    `unequal` tells where the bits differ, and `differing` in how many places; of two dtypes, it is the bits of the
    values as float64. `crosses` is False where no pair has two first bits, so that no number changed its sign. `gap` is
    |right - left|, without overflow for 64-bit integers, NaN where one side is or both are the same infinity;
    `greatest` is its maximum, NaN where one element is. Where no bit differs, `right` is `left` and `gap` 0.
    """

    start: int
    left_bits: Bits
    right_bits: Bits
    left: Doubles
    right: Doubles
    unequal: NDArray[np.bool_]
    differing: int
    crosses: bool
    gap: Doubles
    greatest: float


@dataclass(frozen=True, slots=True)
class Scratch:
    """The arrays that every block of a walk is written to."""

    left: Doubles
    right: Doubles
    gap: Doubles
    apart: NDArray[np.uint64]
    unequal: NDArray[np.bool_]

    @classmethod
    def of(cls, longest: int) -> "Scratch":
        """For blocks of up to `longest` elements."""
        left, right, gap = (np.empty(longest) for _ in range(3))
        return cls(left, right, gap, np.empty(longest, np.uint64), np.empty(longest, np.bool_))


def block_numel(numel: int) -> int:
    """Elements in the longest block of a tensor of `numel` elements."""
    return min(BLOCK_NUMEL, numel)


def are_equal(left: Bits, right: Bits) -> bool:
    """Whether two sides of one length and width have the same bits; stops at the first block that differs."""
    starts = range(0, len(left), BLOCK_NUMEL)
    return all(np.array_equal(left[s : s + BLOCK_NUMEL], right[s : s + BLOCK_NUMEL]) for s in starts)


def walk(left: Bits, right: Bits, dtypes: tuple[str, str], scratch: Scratch, first: int = 0) -> Iterator[Block]:
    """Yield the blocks of two sides of one length, in order; `dtypes` are left's and right's.

    `first` is the place in the tensor of these sides' first element.
    """
    size = len(scratch.gap)
    for start in range(0, len(left), size or 1):
        yield _block(first + start, left[start : start + size], right[start : start + size], dtypes, scratch)


def _block(start: int, left: Bits, right: Bits, dtypes: tuple[str, str], scratch: Scratch) -> Block:
    n = len(left)
    left_dtype, right_dtype = dtypes
    one_dtype = left_dtype == right_dtype
    unequal, gap = scratch.unequal[:n], scratch.gap[:n]
    left_values = right_values = decode(left, left_dtype, scratch.left[:n])
    if not one_dtype:
        right_values = decode(right, right_dtype, scratch.right[:n])
        left, right = left_values.view(np.uint64), right_values.view(np.uint64)
    differing = int(np.count_nonzero(np.not_equal(left, right, out=unequal)))
    if not differing:
        gap[:] = 0.0
        return Block(start, left, right, left_values, left_values, unequal, 0, False, gap, greatest=0.0)
    if one_dtype:
        right_values = decode(right, right_dtype, scratch.right[:n])
    # Of two numbers that differ in their first bit, the exclusive or is negative.
    apart = np.bitwise_xor(left, right, out=scratch.apart.view(left.dtype)[:n])
    crosses = bool(apart.view(f"<i{left.itemsize}").min() < 0)
    if one_dtype and left_dtype in ("int64", "uint64"):
        gap[:] = _integer_gap(left, right, left_dtype)
    else:
        np.abs(np.subtract(right_values, left_values, out=gap), out=gap)
    greatest = float(gap.max())
    return Block(start, left, right, left_values, right_values, unequal, differing, crosses, gap, greatest)


def _integer_gap(left: Bits, right: Bits, dtype: str) -> NDArray[np.uint64]:
    """|right - left| of 64-bit integers, exact."""
    a, b = (left, right) if dtype == "uint64" else (left.view("<i8"), right.view("<i8"))
    # The difference may exceed int64 but never uint64, whose bits wrapped subtraction gives.
    return np.subtract(np.maximum(a, b), np.minimum(a, b)).view(np.uint64)

"""How two tensors differ: exact counts, extremes and distances, in bounded memory."""

import math

import numpy as np
from numpy.typing import NDArray

from ckptcheck.comparison.accumulation import Accumulator
from ckptcheck.comparison.blocks import Block, Scratch, are_equal, block_numel, walk
from ckptcheck.comparison.decoding import FLOATS, bits_in, bits_of, by_component, is_known
from ckptcheck.comparison.rounding import EqualAfterCast, RoundedThrough
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.comparison.ulp import UlpDistances
from ckptcheck.state.tensor import TensorSpec

__all__ = ["RunningDifference", "TensorDifference", "compare_bytes", "count_beyond"]


class RunningDifference:
    """The difference of two tensors of one shape whose bytes come piece by piece, in order.

    Pieces of a multiple of `blocks.BLOCK_NUMEL` elements, the last excepted, give the very numbers of one piece.
    Beside the pieces it takes less than 8 MB, whatever the size.
    """

    def __init__(
        self,
        left: TensorSpec,
        right: TensorSpec,
        *,
        tolerance: tuple[float, float] | None = None,
        cast: str = "",
    ) -> None:
        """`tolerance` is (rtol, atol), `cast` a dtype of `EqualAfterCast`. Raises ValueError as `compare_bytes`."""
        self._spec, other = _paired(left, right)
        self._dtypes = dtypes = self._spec.dtype, other.dtype
        longest = block_numel(self._spec.numel)
        self._scratch = Scratch.of(longest)
        self._found, self._rounding = Accumulator(), RoundedThrough(*dtypes)
        self._ulps = UlpDistances(dtypes[0], longest) if dtypes[0] == dtypes[1] and dtypes[0] in FLOATS else None
        self._tolerance = tolerance
        self._cast = EqualAfterCast(dtypes, cast) if cast else None
        self._seen = 0
        self._beyond = 0

    def add(self, left: memoryview, right: memoryview) -> None:
        """Take up the next piece of both sides; ValueError where they are not of one length in elements."""
        left_bits, right_bits = bits_in(left, self._dtypes[0]), bits_in(right, self._dtypes[1])
        if len(left_bits) != len(right_bits):
            raise ValueError(f"a piece of {len(left_bits)} elements cannot be compared with {len(right_bits)}")
        with np.errstate(all="ignore"):
            for block in walk(left_bits, right_bits, self._dtypes, self._scratch, self._seen):
                self._take(block)
        self._seen += len(left_bits)

    @property
    def difference(self) -> TensorDifference:
        """Of all pieces so far."""
        found, ulps, shape = self._found, self._ulps, self._spec.shape
        if self._dtypes[0] == self._dtypes[1] and not found.differing:
            return _none(self._spec)
        value_changed = found.nan > 0 or bool(found.max_abs)
        return TensorDifference(
            numel=self._spec.numel,
            differing=found.differing,
            signed_zeros=found.signed_zeros,
            nan_payloads=found.nan_payloads,
            first_at=_index(found.first_at, shape),
            max_abs=found.max_abs,
            max_abs_at=_index(found.greatest_at, shape),
            rel_l2=found.rel_l2,
            max_ulp=ulps.greatest if ulps else None,
            median_ulp=ulps.median if ulps else None,
            sign_flips=found.sign_flips,
            nan=found.nan,
            inf=found.inf,
            rounded_through=self._rounding.narrowest if value_changed else None,
            ulp_counts=ulps.by_powers_of_two if ulps else (),
        )

    @property
    def beyond(self) -> int | None:
        """Elements beyond the tolerance, as `count_beyond` counts; None where none was given."""
        return self._beyond if self._tolerance else None

    @property
    def is_equal_after_cast(self) -> bool:
        """Whether every element so far is equal once cast; False where no cast was asked for."""
        return self._cast is not None and self._cast.holds

    def _take(self, block: Block) -> None:
        self._rounding.add(block.left, block.right)
        if self._cast:
            self._cast.add(block.left, block.right)
        if self._tolerance:
            self._beyond += _beyond(block, *self._tolerance)
        if self._ulps:
            _add_ulps(self._ulps, block)
        self._found.add(block)  # the last, since it writes on the gap


def compare_bytes(
    left: memoryview, right: memoryview, left_spec: TensorSpec, right_spec: TensorSpec
) -> TensorDifference:
    """Compare two tensors of one shape, given as row-major little-endian bytes.

    Equal bytes give 0 everywhere (ULP None where the dtype has none), without looking at values. Two dtypes
    are compared by value in float64. Beside the inputs it takes less than 8 MB, whatever their size.

    Raises ValueError where the shapes differ, only one side is complex, the size of an element is not
    known, or a buffer is not `nbytes` of its spec long.
    """
    left_parts, right_parts = _paired(left_spec, right_spec)
    left_bits, right_bits = bits_of(left, left_parts), bits_of(right, right_parts)
    if left_parts.dtype == right_parts.dtype and are_equal(left_bits, right_bits):
        return _none(left_parts)
    running = RunningDifference(left_spec, right_spec)
    running.add(left, right)
    return running.difference


def count_beyond(
    left: memoryview, right: memoryview, left_spec: TensorSpec, right_spec: TensorSpec, *, rtol: float, atol: float
) -> int:
    """How many elements break |right - left| <= atol + rtol * |left|; complex tensors part by part.

    NaN agrees with NaN only, an infinity with itself only (`torch.testing.assert_close`, equal_nan=True);
    the values are compared in float64, the difference of 64-bit integers without overflow.
    Raises ValueError as `compare_bytes` does.
    """
    left_spec, right_spec = _paired(left_spec, right_spec)
    left_bits, right_bits = bits_of(left, left_spec), bits_of(right, right_spec)
    scratch = Scratch.of(block_numel(len(left_bits)))
    with np.errstate(all="ignore"):
        blocks = walk(left_bits, right_bits, (left_spec.dtype, right_spec.dtype), scratch)
        return sum(_beyond(block, rtol, atol) for block in blocks)


def _paired(left: TensorSpec, right: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    left_parts, right_parts = by_component(left), by_component(right)
    if left.shape != right.shape or left_parts.shape != right_parts.shape:
        raise ValueError(f"{left} and {right} cannot be compared element by element")
    for spec in (left_parts, right_parts):
        if not is_known(spec.dtype):
            raise ValueError(f"elements of dtype {spec.dtype} cannot be compared: their size is not known")
    return left_parts, right_parts


def _none(spec: TensorSpec) -> TensorDifference:
    none = 0 if spec.dtype in FLOATS else None
    return TensorDifference(spec.numel, max_ulp=none, median_ulp=none)


def _beyond(block: Block, rtol: float, atol: float) -> int:
    within: NDArray[np.bool_] = (block.gap <= atol + rtol * np.abs(block.left)) & np.isfinite(block.gap)
    within |= ~block.unequal | (np.isnan(block.left) & np.isnan(block.right))
    return len(within) - int(np.count_nonzero(within))


def _add_ulps(ulps: UlpDistances, block: Block) -> None:
    left, right, differing = block.left_bits, block.right_bits, block.differing
    if not math.isfinite(block.greatest):
        numbers = ~(np.isnan(block.left) | np.isnan(block.right))
        left, right, differing = left[numbers], right[numbers], int(np.count_nonzero(block.unequal[numbers]))
    ulps.add(left, right, differing, block.crosses)


def _index(position: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if position is None else tuple(int(i) for i in np.unravel_index(position, shape))

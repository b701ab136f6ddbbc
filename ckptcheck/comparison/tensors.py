"""How two tensors differ: exact counts, extremes and distances, in bounded memory."""

import math
from dataclasses import dataclass

import numpy as np

from ckptcheck.comparison.accumulation import Accumulator
from ckptcheck.comparison.blocks import Block, are_equal, block_numel, walk
from ckptcheck.comparison.decoding import FLOATS, bits_of, by_component
from ckptcheck.comparison.rounding import RoundedThrough
from ckptcheck.comparison.ulp import UlpDistances
from ckptcheck.state.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """How right differs from left, element by element; of complex tensors, part by part.

    A complex tensor is taken as `torch.view_as_real` shows it: `numel` counts parts, and a place has a last
    index 0 (real) or 1 (imaginary).

    Attributes:
        numel: number of elements.
        differing: elements whose bytes differ; between two dtypes, whose values as float64 do.
        signed_zeros: of these, 0.0 on one side and -0.0 on the other.
        nan_payloads: of these, NaN on both sides with different bits.
        first_at: index of the first differing element; None without one.
        max_abs: greatest |right - left| in float64, rounded once; infinite where an infinity faces another
            number or the difference exceeds float64. Pairs with a NaN are left out; None where no other differs.
        max_abs_at: index of the first element where it is reached; None where `max_abs` is 0 or None.
        rel_l2: norm of right - left over the norm of left, equal infinities and pairs with a NaN left out;
            infinite where an infinity faces another number. None where left holds no finite number but zero.
        max_ulp: greatest distance in units in the last place over differing elements, exact; infinity comes
            next to the greatest finite number. Pairs with a NaN are left out. None for integers, bool and
            two dtypes, and where no pair remains.
        median_ulp: lower median of these distances, exact below 256 and above that within 1 %.
        sign_flips: elements positive on one side and negative on the other; zero has no sign here.
        nan: elements NaN on exactly one side.
        inf: elements infinite on exactly one side.
        rounded_through: the narrowest of float8_e5m2, float8_e4m3fn, bfloat16, float16 and float32 through
            which every element of right is left's element rounded and cast back, as torch casts; None where
            there is none, and where nothing was rounded. Few elements may fit a narrower one by chance.
    """

    numel: int
    differing: int = 0
    signed_zeros: int = 0
    nan_payloads: int = 0
    first_at: tuple[int, ...] | None = None
    max_abs: float | None = 0.0
    max_abs_at: tuple[int, ...] | None = None
    rel_l2: float | None = 0.0
    max_ulp: int | None = None
    median_ulp: int | None = None
    sign_flips: int = 0
    nan: int = 0
    inf: int = 0
    rounded_through: str | None = None


def compare_bytes(
    left: memoryview, right: memoryview, left_spec: TensorSpec, right_spec: TensorSpec
) -> TensorDifference:
    """Compare two tensors of one shape, given as row-major little-endian bytes.

    Equal bytes give 0 everywhere (ULP None where the dtype has none), without looking at values. Two dtypes
    are compared by value in float64. Beside the inputs it takes less than 8 MB, whatever their size.

    Raises ValueError where the shapes differ, only one side is complex, the size of an element is not
    known, or a buffer is not `nbytes` of its spec long.
    """
    left_spec, right_spec = _paired(left_spec, right_spec)
    left_bits, right_bits = bits_of(left, left_spec), bits_of(right, right_spec)
    dtypes = left_spec.dtype, right_spec.dtype
    one_dtype = left_spec.dtype == right_spec.dtype
    has_ulp = one_dtype and left_spec.dtype in FLOATS
    if one_dtype and are_equal(left_bits, right_bits):
        none = 0 if has_ulp else None
        return TensorDifference(left_spec.numel, max_ulp=none, median_ulp=none)
    found, rounding = Accumulator(), RoundedThrough(*dtypes)
    ulps = UlpDistances(left_spec.dtype, block_numel(left_bits)) if has_ulp else None
    with np.errstate(all="ignore"):
        for block in walk(left_bits, right_bits, dtypes):
            rounding.add(block.left, block.right)
            if ulps:
                _add_ulps(ulps, block)
            found.add(block)
    return _difference(left_spec, found, ulps, rounding)


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
    beyond = 0
    with np.errstate(all="ignore"):
        for block in walk(left_bits, right_bits, (left_spec.dtype, right_spec.dtype)):
            within = (block.gap <= atol + rtol * np.abs(block.left)) & np.isfinite(block.gap)
            within |= ~block.unequal | (np.isnan(block.left) & np.isnan(block.right))
            beyond += len(within) - int(np.count_nonzero(within))
    return beyond


def _paired(left: TensorSpec, right: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    left_parts, right_parts = by_component(left), by_component(right)
    if left.shape != right.shape or left_parts.shape != right_parts.shape:
        raise ValueError(f"{left} and {right} cannot be compared element by element")
    return left_parts, right_parts


def _add_ulps(ulps: UlpDistances, block: Block) -> None:
    left, right, unequal = block.left_bits, block.right_bits, block.unequal
    if not math.isfinite(block.greatest):
        numbers = ~(np.isnan(block.left) | np.isnan(block.right))
        left, right, unequal = left[numbers], right[numbers], unequal[numbers]
    ulps.add(left, right, int(np.count_nonzero(unequal)))


def _difference(
    spec: TensorSpec, found: Accumulator, ulps: UlpDistances | None, rounding: RoundedThrough
) -> TensorDifference:
    value_changed = found.nan > 0 or bool(found.max_abs)
    return TensorDifference(
        numel=spec.numel,
        differing=found.differing,
        signed_zeros=found.signed_zeros,
        nan_payloads=found.nan_payloads,
        first_at=_index(found.first_at, spec.shape),
        max_abs=found.max_abs,
        max_abs_at=_index(found.greatest_at, spec.shape),
        rel_l2=found.rel_l2,
        max_ulp=ulps.greatest if ulps else None,
        median_ulp=ulps.median if ulps else None,
        sign_flips=found.sign_flips,
        nan=found.nan,
        inf=found.inf,
        rounded_through=rounding.narrowest if value_changed else None,
    )


def _index(position: int | None, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if position is None else tuple(int(i) for i in np.unravel_index(position, shape))

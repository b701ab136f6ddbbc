"""The numbers that tell how two tensors differ; knows no numpy, so that equal checkpoints need none."""

from dataclasses import dataclass, field
from typing import Final

NARROW_DTYPES: Final = ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "float32")
"""What values may have been rounded through, the narrowest first."""


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
        ulp_counts: of the differing elements, how many are 0 units in the last place apart, 1, 2 to 3, 4 to 7, and so
            on by powers of two, as far as `max_ulp`; a distance beyond 2**24 may count one place further. Empty where
            `max_ulp` is None. For a picture: no part of equality.
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
    ulp_counts: tuple[int, ...] = field(default=(), compare=False)

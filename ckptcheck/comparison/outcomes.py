"""What became of a pair, and which tolerance holds for it."""

from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.checkpoint_diff import DiffOptions, Kind
from ckptcheck.comparison.pairs import Pair
from ckptcheck.comparison.tensor_difference import TensorDifference

COMPUTED: Final = ("param", "buffer", "grad", "state", "ema")
"""Roles of what training computes: a tolerance that names no role is for these."""
COUNTERS: Final = frozenset({"step"})
"""State that counts, in whatever dtype: one more is no rounding."""
_FLOATING: Final = ("float", "bfloat", "complex")


@dataclass(slots=True)
class Outcome:
    """How one pair compares, filled in as it becomes known.

    `kind` is None for equal, tolerated and not compared; `difference`, `beyond` and `other` are those of a `Row`.
    `nbytes` counts the left side's bytes that were compared, 0 where another pair has counted the same tensors.
    `is_compared` is False where the contents could not be held against each other; `kept_otherwise` tells equal
    values of two kinds (a number and a tensor); `partner` is the place of the pair that a renamed one goes on in, and
    `is_absorbed` marks that pair.
    """

    kind: Kind | None = None
    difference: TensorDifference | None = None
    beyond: int | None = None
    other: str = ""
    nbytes: int = 0
    is_compared: bool = True
    is_tolerated: bool = False
    is_cast_equal: bool = False
    kept_otherwise: bool = False
    partner: int | None = None
    is_absorbed: bool = False


def tolerance_of(pair: Pair, dtype: str, options: DiffOptions) -> tuple[float, float] | None:
    """(rtol, atol) for a pair, the most specific first: role and dtype, role, section and dtype, section, all.

    `dtype` is "" for a plain value that is no float, and "float" for one that is. Buffers take what parameters have
    where nothing else is said: many files cannot tell them apart. What no role asks for has the tolerance of all only
    where training computes it (`COMPUTED`) in floating point. Generators and truth values are exact. None for exact.
    """
    if pair.section == "rng" or dtype == "bool":
        return None
    for name in (pair.role, *(("param",) if pair.role == "buffer" else ()), pair.section):
        for key in (f"{name}:{dtype}", name):
            if key in options.tolerances:
                return _or_exact(options.tolerances[key])
    if pair.role not in COMPUTED or pair.key in COUNTERS or not dtype.startswith(_FLOATING):
        return None
    return _or_exact((options.rtol, options.atol))


def _or_exact(tolerance: tuple[float, float]) -> tuple[float, float] | None:
    return tolerance if any(tolerance) else None

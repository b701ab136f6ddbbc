"""What a comparison of two tensors must find, by exact rational arithmetic, enumerated floats and torch's casts."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from ckptcheck.comparison.tensors import TensorDifference, compare_bytes
from ckptcheck.state.tensor import TensorSpec

FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
FLOATS = ["float64", "float32", "float16", "bfloat16", *FLOAT8]
BITS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, **dict.fromkeys(FLOAT8, 8)}
NAN, INF = math.nan, math.inf


def raw(tensor):
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")


def spec(tensor):
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def compare(left, right):
    return compare_bytes(raw(left), raw(right), spec(left), spec(right))


def tensor(values, dtype="float32"):
    return torch.tensor(values, dtype=torch.float64).to(getattr(torch, dtype))


def from_bits(patterns, dtype):
    return torch.from_numpy(np.array(patterns, f"<u{BITS[dtype] // 8}").view(np.uint8)).view(getattr(torch, dtype))


def magnitude_rank(value, dtype):
    """Place of a value among the non-negative floats of its dtype, by the definition of IEEE 754 or by count."""
    if dtype in ("float64", "float32"):
        fmt, whole = (">d", ">Q") if dtype == "float64" else (">f", ">L")
        return struct.unpack(whole, struct.pack(fmt, abs(value)))[0]
    return ENUMERATED[dtype][abs(value)]


def _enumerate(dtype):
    every = from_bits(range(1 << BITS[dtype]), dtype).to(torch.float64).tolist()
    return {value: place for place, value in enumerate(sorted({abs(v) for v in every if not math.isnan(v)}))}


ENUMERATED = {dtype: _enumerate(dtype) for dtype in FLOATS if BITS[dtype] <= 16}


def ulps_apart(left, right, dtype):
    a, b = (magnitude_rank(v, dtype) * (-1 if math.copysign(1, v) < 0 else 1) for v in (left, right))
    return abs(a - b)


def root_ratio(numerator, denominator):
    """Square root of a ratio of exact sums, by integer square root: right to 60 bits at any scale."""
    ratio = numerator / denominator
    if not ratio:
        return 0.0
    shift = 128 - (ratio.numerator.bit_length() - ratio.denominator.bit_length()) // 2
    root = Fraction(math.isqrt(int(ratio * Fraction(4) ** shift))) / Fraction(2) ** shift
    try:
        return float(root)
    except OverflowError:
        return INF


def as_float(exact):
    try:
        return float(exact)
    except OverflowError:
        return INF


def reference(left, right):
    """The statistics element by element in exact arithmetic, for float tensors of one dtype and one dimension."""
    dtype = spec(left).dtype
    size = left.element_size()
    a, b = bytes(raw(left)), bytes(raw(right))
    apart = [i for i in range(left.numel()) if a[i * size : (i + 1) * size] != b[i * size : (i + 1) * size]]
    pairs = list(zip(left.to(torch.float64).tolist(), right.to(torch.float64).tolist(), strict=True))
    numbers = [i for i in apart if not any(map(math.isnan, pairs[i]))]
    gaps = [INF if INF in map(abs, pairs[i]) else as_float(abs(Fraction(pairs[i][1]) - Fraction(pairs[i][0])))
            for i in numbers]  # fmt: skip
    ulps = sorted(ulps_apart(*pairs[i], dtype) for i in numbers)
    finite = [(Fraction(x), Fraction(y)) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    infinite = [pairs[i] for i in numbers if INF in map(abs, pairs[i])]
    norm = sum(Fraction(x) ** 2 for x, y in pairs if math.isfinite(x) and not math.isnan(y))
    rel = None
    if norm:
        rel = INF if infinite else root_ratio(sum((y - x) ** 2 for x, y in finite), norm)
    greatest = max(gaps, default=None if apart else 0.0)
    return {
        "numel": left.numel(), "differing": len(apart), "first_at": (apart[0],) if apart else None,
        "signed_zeros": sum(1 for i in numbers if pairs[i][0] == 0 == pairs[i][1]),
        "nan_payloads": sum(1 for i in apart if all(map(math.isnan, pairs[i]))),
        "max_abs": greatest, "max_abs_at": (numbers[gaps.index(greatest)],) if greatest else None,
        "rel_l2": rel, "max_ulp": ulps[-1] if ulps else None,
        "median_ulp": ulps[(len(ulps) - 1) // 2] if ulps else None,
        "sign_flips": sum(1 for x, y in pairs if (x < 0 < y) or (y < 0 < x)),
        "nan": sum(1 for x, y in pairs if math.isnan(x) != math.isnan(y)),
        "inf": sum(1 for x, y in pairs if math.isinf(x) != math.isinf(y)),
        "rounded_through": rounded_through(left, right) if greatest or any(
            math.isnan(x) != math.isnan(y) for x, y in pairs) else None,
    }  # fmt: skip


def rounded_through(left, right):
    if left.element_size() == 1:
        return None
    for name in ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "float32"):
        narrow = getattr(torch, name)
        if narrow == left.dtype or narrow.itemsize > left.element_size():
            continue
        cast = left.to(narrow)
        casts = [cast] if name != "float8_e4m3fn" else [cast, *overflowing(left, cast)]
        if any(same_bits(one.to(right.dtype).to(torch.float64), right.to(torch.float64)) for one in casts):
            return name
    return None


def check(left, right):
    found, wanted = compare(left, right), reference(left, right)
    if not wanted["differing"]:
        assert found == TensorDifference(left.numel(), max_ulp=0, median_ulp=0)
        return
    median, rel = wanted.pop("median_ulp"), wanted.pop("rel_l2")
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert found.rel_l2 == (rel if rel is None else pytest.approx(rel, rel=1e-12, abs=0))
    if median is None or median < 256:
        assert found.median_ulp == median
    else:
        assert median * 0.99 <= found.median_ulp <= min(median * 1.000001, found.max_ulp)


def overflowing(left, cast):
    """What torch's versions make of float8_e4m3fn's overflow, past the tie between 448 and 480."""
    over = left.float().abs() > 464
    return [torch.where(over, one.to(cast.dtype).float(), cast.float())
            for one in (tensor(NAN), torch.copysign(tensor(448.0), left.float()))]  # fmt: skip


def same_bits(left, right):
    return bool(((left.view(torch.int64) == right.view(torch.int64)) | (left.isnan() & right.isnan())).all())


@st.composite
def two_sides(draw, dtype):
    """Patterns of which the right repeats the left, moves by a few ULP, flips a sign, or is anything."""
    special = {"float64": [0x7FF0 << 48, 1, 0x7FF8 << 48], "float32": [0x7F80 << 16, 1, 0x7FC0 << 16],
               "float16": [0x7C00, 1, 0x7E00], "bfloat16": [0x7F80, 1, 0x7FC0]}.get(dtype, [0x7E, 1, 0x7F])  # fmt: skip
    top = 1 << (BITS[dtype] - 1)
    pattern = st.integers(0, 2 * top - 1) | st.sampled_from([0, top, *special, *(top + s for s in special)])
    left = draw(st.lists(pattern, min_size=1, max_size=24))
    right = []
    for one in left:
        changes = [one, one, one ^ top, one ^ draw(st.integers(0, min(255, top - 1))), draw(pattern)]
        right.append(draw(st.sampled_from(changes)))
    return from_bits(left, dtype), from_bits(right, dtype)

"""Numbers of a tensor difference, by tables and on any bits."""

import math
import struct
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.comparison import blocks
from ckptcheck.comparison.decoding import bits_of, decode
from ckptcheck.comparison.tensors import TensorDifference, compare_bytes, count_beyond
from ckptcheck.state.tensor import TensorSpec
from tests.comparison.exact import (
    BITS,
    FLOATS,
    INF,
    NAN,
    check,
    compare,
    from_bits,
    raw,
    root_ratio,
    spec,
    tensor,
    two_sides,
)  # fmt: skip

INTEGERS = ["int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_NUMEL", 7)


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_number_equals_exact_arithmetic_on_any_bits(dtype, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_NUMEL", data.draw(st.sampled_from([1, 7, 1000])))
        check(*data.draw(two_sides(dtype)))


@pytest.mark.parametrize(
    "right",
    [[1.0, 2.5, -3.0, 0.0], [1.0, 2.0, 3.0, 0.0], [1.0, 2.0, -3.0, -0.0], [NAN, 2.0, -3.0, 0.0], [1.0, INF, -INF, 0.0],
     [1.0, 2.0, -3.0, 1e-45]],
)  # fmt: skip
@pytest.mark.parametrize("left", [[1.0, 2.0, -3.0, 0.0], [0.0] * 4, [INF, INF, -3.0, NAN], [-INF, 2.0, NAN, -0.0]])
def test_special_values_meet_each_other(left, right):
    check(tensor(left), tensor(right))
    check(tensor(left, "float64"), tensor(right, "float64"))


def test_zeros_of_two_signs_differ_in_bytes_and_in_nothing_else():
    assert compare(tensor([0.0, 1.0]), tensor([-0.0, 1.0])) == TensorDifference(
        2, differing=1, signed_zeros=1, first_at=(0,), max_ulp=0, median_ulp=0
    )


def test_two_nans_differ_in_bytes_and_are_counted_apart():
    left, right = from_bits([0x7FC00000, 0x3F800000], "float32"), from_bits([0x7FC00001, 0x3F800000], "float32")
    assert compare(left, right) == TensorDifference(2, differing=1, nan_payloads=1, first_at=(0,), max_abs=None)


def test_an_infinity_on_one_side_gives_an_infinite_difference_but_a_small_ulp():
    greatest = torch.finfo(torch.float32).max
    found = compare(tensor([1.0, greatest]), tensor([1.0, INF]))
    assert (found.max_abs, found.max_abs_at, found.rel_l2, found.inf, found.max_ulp) == (INF, (1,), INF, 1, 1)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("start", [0.0, 1.0, -1.0, 2.0**-126, 2.0**-1022, -3.5, 1e-45])
@pytest.mark.parametrize("steps", [1, 3, 17])
def test_ulps_are_steps_of_nextafter(dtype, start, steps):
    left = torch.tensor([start], dtype=getattr(torch, dtype))
    right = left.clone()
    for _ in range(steps):
        right = torch.nextafter(right, torch.tensor(-INF, dtype=right.dtype))
    found = compare(left, right)
    assert (found.max_ulp, found.median_ulp) == (steps, steps)


def test_ulps_of_exponents_without_sign_are_steps():
    left, right = (torch.tensor(bits, dtype=torch.uint8).view(torch.float8_e8m0fnu) for bits in ([0, 127], [254, 128]))
    found = compare(left, right)
    assert (found.max_ulp, found.median_ulp, found.sign_flips, found.max_abs) == (254, 1, 0, 2.0**127)


def test_ulps_reach_across_all_of_float64():
    found = compare(tensor([-INF], "float64"), tensor([INF], "float64"))
    assert found.max_ulp == 2 * 0x7FF0000000000000
    assert found.max_ulp * 0.99 <= found.median_ulp <= found.max_ulp


def test_the_median_is_the_lower_one_and_leaves_equal_elements_out(small_blocks):
    left = torch.ones(20)
    steps = [0] * 14 + [1, 2, 5, 9, 100, 100000]
    right = (left.view(torch.int32) + torch.tensor(steps, dtype=torch.int32)).view(torch.float32)
    found = compare(left, right)
    assert (found.differing, found.median_ulp, found.max_ulp) == (6, 5, 100000)


@pytest.mark.parametrize("exponent", [-1074, -1000, -600, 0, 600, 1000])
def test_norms_neither_overflow_nor_underflow(exponent, small_blocks):
    left = tensor([math.ldexp(v, exponent) for v in [1.0, 5.0, -3.0] * 6], "float64")
    right = tensor([math.ldexp(v, exponent) for v in [2.0, 5.0, -3.0] * 6], "float64")
    assert compare(left, right).rel_l2 == pytest.approx(math.sqrt(1 / 35), rel=1e-12)


@pytest.mark.parametrize(
    ("left", "right"),
    [([1e308] * 9, [-1e308] * 9), ([1e300] * 8 + [1.0], [1e300] * 8 + [1e-300]), ([1e-300, 0.0], [1e-300, 5e-324]),
     ([5e-324], [1e308]), ([1e-300] * 8 + [1e300] * 8, [1e-300] * 7 + [0.0] + [1e300] * 8),
     ([1.0, 1e308], [-INF, -1e308])],
)  # fmt: skip
def test_norms_span_the_whole_range_of_float64(left, right, small_blocks):
    check(tensor(left, "float64"), tensor(right, "float64"))


@pytest.mark.parametrize("dtype", INTEGERS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_integers_are_compared_without_overflow(dtype, data):
    info = np.iinfo(dtype) if dtype != "bool" else None
    low, high = (int(info.min), int(info.max)) if info else (0, 1)
    number = st.integers(low, high) | st.sampled_from([low, high, 0, min(high, 2**53), min(high, 2**53 + 1)])
    pairs = data.draw(st.lists(st.tuples(number, number) | number.map(lambda n: (n, n)), min_size=1, max_size=20))
    sides = [memoryview(np.array(side, dtype if info else "uint8").tobytes()) for side in zip(*pairs, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_NUMEL", 7)
        shape = TensorSpec(dtype, (len(pairs),))
        found = compare_bytes(*sides, shape, shape)
    gaps = [abs(a - b) for a, b in pairs]
    assert found.differing == sum(1 for gap in gaps if gap)
    assert found.max_abs == float(max(gaps))
    assert found.max_abs_at is None or float(gaps[found.max_abs_at[0]]) == found.max_abs
    assert found.sign_flips == sum(1 for a, b in pairs if a * b < 0)
    assert (found.max_ulp, found.median_ulp, found.signed_zeros, found.rounded_through) == (None, None, 0, None)
    norm = sum(a * a for a, _ in pairs)
    if found.differing:
        wanted = root_ratio(Fraction(sum(gap * gap for gap in gaps)), Fraction(norm)) if norm else None
        assert found.rel_l2 == (wanted if wanted is None else pytest.approx(wanted, rel=1e-12))


def test_64_bit_integers_beyond_the_mantissa_of_float64_differ_by_one():
    found = compare(torch.tensor([2**53, 2**62]), torch.tensor([2**53 + 1, 2**62]))
    assert (found.differing, found.max_abs, found.max_abs_at) == (1, 1.0, (0,))


def test_complex_tensors_are_compared_part_by_part():
    left = torch.tensor([[1 + 2j, 3 + 4j]], dtype=torch.complex64)
    right = torch.tensor([[1 + 2j, 3 - 4j]], dtype=torch.complex64)
    found = compare(left, right)
    assert (found.numel, found.differing, found.first_at, found.max_abs_at) == (4, 1, (0, 1, 1), (0, 1, 1))
    assert (found.max_abs, found.sign_flips) == (8.0, 1)
    assert found.rel_l2 == pytest.approx(8 / math.sqrt(30))
    assert found.max_ulp == 2 * 0x40800000


def test_places_are_indices_of_the_shape(small_blocks):
    left = torch.zeros(3, 4, 5)
    right = left.clone()
    right[1, 2, 3], right[2, 0, 1] = 1.0, -2.0
    found = compare(left, right)
    assert (found.first_at, found.max_abs_at, found.differing) == ((1, 2, 3), (2, 0, 1), 2)
    scalar = compare(torch.tensor(1.0), torch.tensor(2.0))
    assert (scalar.first_at, scalar.max_abs_at, scalar.numel) == ((), (), 1)


@pytest.mark.parametrize("size", [1, 6, 7, 8, 13, 14, 15, 21])
def test_the_last_element_counts_at_every_border_of_blocks(size, small_blocks):
    left = torch.linspace(1, 2, size)
    right = left.clone()
    right[-1] = -5
    check(left, right)
    check(right, left)


def test_empty_tensors_are_equal():
    empty = torch.zeros(0, 3)
    assert compare(empty, empty) == TensorDifference(0, max_ulp=0, median_ulp=0)
    assert compare(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).differing == 0


def test_equal_bytes_give_zeros_even_for_nan():
    one = tensor([NAN, INF, 1.0])
    assert compare(one, one.clone()) == TensorDifference(3, max_ulp=0, median_ulp=0)
    assert compare(torch.arange(3), torch.arange(3)) == TensorDifference(3)


def test_two_dtypes_are_compared_by_value():
    left = torch.tensor([1.0, 1.0001, -0.0, 3.0])
    found = compare(left, left.to(torch.bfloat16))
    assert (found.differing, found.first_at, found.max_ulp) == (1, (1,), None)
    assert found.max_abs == abs(float(left[1]) - 1.0)
    mixed = compare(torch.tensor([1, -2, 2**60]), torch.tensor([1.0, 2.0, 2.0**60], dtype=torch.float64))
    assert (mixed.differing, mixed.max_abs, mixed.sign_flips, mixed.rounded_through) == (1, 4.0, 1, None)


def test_bytes_may_lie_at_odd_addresses():
    left, right = b"x" + struct.pack("<3f", 1, 2, 3), b"y" + struct.pack("<3f", 1, 2, 4)
    three = TensorSpec("float32", (3,))
    assert compare_bytes(memoryview(left)[1:], memoryview(right)[1:], three, three).first_at == (2,)


@pytest.mark.parametrize(
    ("left", "right", "length", "says"),
    [
        (TensorSpec("float32", (2,)), TensorSpec("float32", (1, 2)), 8, "element by element"),
        (TensorSpec("complex64", (1,)), TensorSpec("float32", (1, 2)), 8, "element by element"),
        (TensorSpec("complex64", (1,)), TensorSpec("float64", (1,)), 8, "element by element"),
        (TensorSpec("float6_e3m2fn", (8,)), TensorSpec("float6_e3m2fn", (8,)), 8, "size is not known"),
        (TensorSpec("float32", (3,)), TensorSpec("float32", (3,)), 8, "takes 12 bytes, the buffer holds 8"),
    ],
)
def test_what_cannot_be_compared_is_refused(left, right, length, says):
    with pytest.raises(ValueError, match=says):
        compare_bytes(memoryview(bytes(length)), memoryview(bytes(length)), left, right)


def test_memory_does_not_grow_with_the_tensor():
    left = np.random.default_rng(0).standard_normal(3_000_000).astype(np.float32)
    right = -left
    shape = TensorSpec("float32", left.shape)
    tracemalloc.start()
    found = compare_bytes(memoryview(left).cast("B"), memoryview(right).cast("B"), shape, shape)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.sign_flips == left.size
    assert peak_bytes < 8e6


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e8m0fnu"])
def test_values_decode_as_torch_decodes_them(dtype):
    patterns = torch.arange(0, 1 << 16, dtype=torch.int32).to(torch.int16).view(torch.uint8)
    patterns = torch.cat([patterns, torch.from_numpy(np.random.default_rng(0).integers(0, 256, 1 << 16, np.uint8))])
    one = patterns.view(getattr(torch, dtype))
    with np.errstate(invalid="ignore"):
        found = decode(bits_of(raw(one), spec(one)), dtype, np.empty(one.numel()))
    np.testing.assert_array_equal(
        found, one.to(torch.float32 if BITS.get(dtype, 8) < 32 else one.dtype).to(torch.float64).numpy()
    )


def outside(left, right, **tolerance):
    return count_beyond(raw(left), raw(right), spec(left), spec(right), **tolerance)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_tolerance_is_that_of_torch_testing(data):
    left, right = data.draw(two_sides("float32"))
    rtol, atol = data.draw(st.sampled_from([(0.0, 0.0), (1e-3, 0.0), (0.0, 1e-3), (1.3e-6, 1e-5), (0.5, 10.0)]))
    close = torch.isclose(right.double(), left.double(), rtol=rtol, atol=atol, equal_nan=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_NUMEL", 7)
        assert outside(left, right, rtol=rtol, atol=atol) == int((~close).sum())


def test_tolerance_is_relative_to_left_and_exact_for_64_bit_integers():
    assert outside(tensor([100.0]), tensor([110.5]), rtol=0.1, atol=0.0) == 1
    assert outside(tensor([110.5]), tensor([100.0]), rtol=0.1, atol=0.0) == 0
    assert outside(torch.tensor([2**53]), torch.tensor([2**53 + 1]), rtol=0.0, atol=0.0) == 1
    assert outside(torch.tensor([2**53]), torch.tensor([2**53 + 1]), rtol=0.0, atol=1.0) == 0
    assert outside(tensor([1.0]), tensor([INF]), rtol=0.0, atol=INF) == 1

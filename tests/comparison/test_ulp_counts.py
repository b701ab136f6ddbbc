"""How many elements are how many units in the last place apart, by powers of two: against exact whole numbers."""

from collections import Counter

import numpy as np
import pytest

from ckptcheck.comparison.tensors import compare_bytes
from ckptcheck.state.tensor import TensorSpec


def ordered(values):
    """float32 as whole numbers in their order: 0.0 and -0.0 are both 0."""
    bits = values.view(np.int32).astype(object)
    return [int(one) if one >= 0 else -(int(one) & 0x7FFFFFFF) for one in bits]


def counted(left, right):
    """Elements whose bits differ, by the bit length of their distance: 0, 1, 2 to 3, 4 to 7, ..."""
    apart = left.view(np.int32) != right.view(np.int32)
    distances = [abs(one - other) for one, other in zip(ordered(left[apart]), ordered(right[apart]), strict=True)]
    counts = Counter(one.bit_length() for one in distances)
    return tuple(counts[place] for place in range(max(counts) + 1))


@pytest.mark.parametrize("size", [1, 1000, 70_000])
def test_elements_are_counted_by_powers_of_two(size):
    drawn = np.random.default_rng(size)
    left = drawn.standard_normal(size).astype(np.float32)
    # Distances below 2**24 are exact; here they are of every size up to there.
    steps = 2 ** drawn.integers(0, 24, size) - drawn.integers(0, 2, size)
    right = (left.view(np.int32) + steps.astype(np.int32)).view(np.float32)
    spec = TensorSpec("float32", (size,))
    found = compare_bytes(memoryview(left.tobytes()), memoryview(right.tobytes()), spec, spec)
    assert found.ulp_counts == counted(left, right)
    assert sum(found.ulp_counts) == found.differing


def test_zeros_of_two_signs_are_none_apart_and_signs_far():
    left, right = np.array([0.0, 1.0, 5.0], np.float32), np.array([-0.0, -1.0, 5.0], np.float32)
    spec = TensorSpec("float32", (3,))
    found = compare_bytes(memoryview(left.tobytes()), memoryview(right.tobytes()), spec, spec).ulp_counts
    assert (found[0], sum(found), len(found)) == (1, 2, (2 * 0x3F800000).bit_length() + 1)


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_what_has_no_last_place_has_no_counts(dtype):
    left, right = np.array([1, 0, 1], dtype), np.array([0, 0, 1], dtype)
    spec = TensorSpec(dtype, (3,))
    assert compare_bytes(memoryview(left.tobytes()), memoryview(right.tobytes()), spec, spec).ulp_counts == ()


def test_what_is_equal_has_no_counts():
    left = np.arange(3, dtype=np.float32)
    spec = TensorSpec("float32", (3,))
    assert compare_bytes(memoryview(left.tobytes()), memoryview(left.tobytes()), spec, spec).ulp_counts == ()

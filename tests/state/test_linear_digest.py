"""The linear digest against its documented formula, in plain Python integers."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.state.tensor_bytes import linear_digest
from tests.state import linear
from tests.state.tensors import DTYPES, from_raw

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")
WORD = 1 << 64
SIZES = (1, 2, 65535, 65536, 65537, 2 * 65536, 3 * 65536 + 11, 64 * 65536 + 5)


def halves(digest: bytes) -> tuple[int, int]:
    return struct.unpack("<QQ", digest)


def some(size: int, dtype: str = "int8") -> torch.Tensor:
    """Mostly zeros, with numbers where blocks begin and end, so that plain Python is quick."""
    tensor = torch.zeros(size, dtype=getattr(torch, dtype))
    places = {0, 1, size // 2, size - 1} | {edge + off for edge in range(0, size, 65536) for off in (-1, 0, 1)}
    for count, place in enumerate(sorted(place for place in places if 0 <= place < size)):
        tensor[place] = (count * 37 + 101) % 255 - 127
    return tensor


@pytest.mark.parametrize("size", SIZES)
def test_blocks_of_65536_elements_follow_the_formula(size):
    tensor = some(size)
    assert linear_digest(tensor) == linear.digest((tensor.numpy().tobytes(), 1))


@pytest.mark.parametrize("size", [32767, 32768, 32769, 65537])
def test_wide_elements_count_as_two(size):
    tensor = some(size, "int64") * (1 << 40)
    assert linear_digest(tensor) == linear.digest((tensor.numpy().tobytes(), 8))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_any_small_tensor_follows_the_formula(data, dtype):
    size = getattr(torch, dtype).itemsize
    count = data.draw(st.integers(0, 12))
    cells = st.integers(0, 1) if dtype == "bool" else st.integers(0, 255)
    raw = bytes(data.draw(st.lists(cells, min_size=count * size, max_size=count * size)))
    assert linear_digest(from_raw(raw, dtype, (count,))) == linear.digest((raw, size))


@settings(max_examples=100, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([one for one in DTYPES if one != "bool"]))
def test_one_flipped_bit_changes_both_halves(data, dtype):
    size = getattr(torch, dtype).itemsize
    count = data.draw(st.integers(1, 40))
    raw = bytearray(data.draw(st.binary(min_size=count * size, max_size=count * size)))
    before = halves(linear_digest(from_raw(bytes(raw), dtype, (count,))))
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    after = halves(linear_digest(from_raw(bytes(raw), dtype, (count,))))
    assert before[0] != after[0] and before[1] != after[1]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(["float32", "float64", "int64", "bfloat16"]))
def test_two_elements_that_change_places_change_the_digest(data, dtype):
    count = data.draw(st.integers(2, 70))
    tensor = torch.arange(1, count + 1).to(getattr(torch, dtype))
    one, two = data.draw(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda t: t[0] != t[1]))
    swapped = tensor.clone()
    swapped[[one, two]] = tensor[[two, one]]
    assert linear_digest(tensor) != linear_digest(swapped)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex128, torch.bfloat16])
def test_no_pair_of_flipped_signs_goes_unseen(dtype):
    tensor = torch.arange(1, 33).to(dtype)
    seen = {linear_digest(tensor)}
    for one in range(32):
        for two in range(one):
            flipped = tensor.clone()
            flipped[[one, two]] *= -1
            seen.add(linear_digest(flipped))
    assert len(seen) == 1 + 32 * 31 // 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeros_whose_signs_flip_in_pairs_do_not_go_unseen(dtype):
    minus = torch.zeros(24, dtype=dtype)
    seen = set()
    for one in range(24):
        for two in range(one):
            flipped = minus.clone()
            flipped[[one, two]] = -0.0
            seen.add(linear_digest(flipped))
    assert len(seen) == 24 * 23 // 2
    assert linear_digest(minus) not in seen


@pytest.mark.parametrize(("count", "cut"), [(9, 4), (9, 1), (65536 * 2 + 7, 65536), (65536 * 2 + 7, 70001)])
def test_shards_laid_into_zeros_add_up_to_the_whole(count, cut):
    whole = torch.from_numpy(np.random.default_rng(3).standard_normal(count).astype(np.float32))
    first, second = torch.zeros(count), torch.zeros(count)
    first[:cut], second[cut:] = whole[:cut], whole[cut:]
    sums = [halves(linear_digest(one)) for one in (first, second, whole)]
    for half in (0, 1):
        assert (sums[0][half] + sums[1][half]) % WORD == sums[2][half]


@pytest.mark.parametrize("size", [5, 65537])
def test_an_element_counts_by_its_logical_place_whatever_the_strides(size):
    tensor = torch.from_numpy(np.random.default_rng(1).integers(-99, 99, (2, size), np.int32))
    assert linear_digest(tensor.t()) == linear_digest(tensor.t().contiguous())
    assert linear_digest(tensor.t()) != linear_digest(tensor)

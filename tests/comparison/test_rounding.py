"""Tensors that were kept in a narrower dtype for a while, with torch's own casts as the judge."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptcheck.comparison import blocks
from ckptcheck.comparison.rounding import NARROW, round_to
from tests.comparison.exact import INF, NAN, check, compare, tensor, two_sides

FLOAT8_SATURATES = bool(torch.tensor(1e9).to(torch.float8_e4m3fn).float().isfinite())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_rounding_is_recognised_as_torch_rounds_and_one_other_element_denies_it(dtype, data):
    left, _ = data.draw(two_sides(dtype))
    narrow = data.draw(st.sampled_from([n for n in NARROW if getattr(torch, n).itemsize <= left.element_size()]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_NUMEL", 5)
        right = left.to(getattr(torch, narrow)).to(left.dtype)
        check(left, right)
        place = data.draw(st.integers(0, left.numel() - 1))
        right[place] = right[place] + 1
        check(left, right)


@pytest.mark.parametrize("dtype", list(NARROW))
def test_rounding_equals_torch_on_every_exponent_and_at_every_tie(dtype):
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = (high[:, None] | low).reshape(-1).view(np.float32)
    with np.errstate(all="ignore"):
        found = round_to(values, dtype, saturate=FLOAT8_SATURATES)
    wanted = torch.from_numpy(values).to(getattr(torch, dtype)).to(torch.float32).numpy()
    same = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
    assert same.all(), values[~same][:5]


@pytest.mark.parametrize("narrow", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_a_tensor_kept_narrower_is_recognised_as_rounded(narrow):
    left = torch.linspace(-3, 3, 997) ** 3
    right = left.to(getattr(torch, narrow))
    assert compare(left, right).rounded_through == narrow
    right[500] = 2.0
    assert compare(left, right).rounded_through is None
    exact = right.to(torch.float32)
    assert compare(exact, right).rounded_through is None


def test_float64_rounds_through_float32_first_as_torch_casts():
    left = torch.tensor([1 + 2.0**-8 + 2.0**-40, 0.3], dtype=torch.float64)  # a tie for bfloat16 once in float32
    right = left.to(torch.bfloat16).double()
    assert right[0] == 1.0
    assert compare(left, right).rounded_through == "bfloat16"
    assert compare(left, left.float().double()).rounded_through == "float32"


@pytest.mark.parametrize("overflow", [448.0, NAN])
def test_overflow_of_float8_may_saturate_or_give_nan(overflow):
    left = tensor([1000.0, 1.05, 465.0, -INF])
    right = tensor([overflow, 1.0, overflow, -overflow])
    assert compare(left, right).rounded_through == "float8_e4m3fn"
    assert compare(left, tensor([overflow, 1.0, overflow, 400.0])).rounded_through is None


def test_the_way_back_rounds_too_and_the_own_dtype_is_no_rounding():
    left = tensor([65504.0, 1.0166], "float16")
    right = left.to(torch.bfloat16).to(torch.float16)
    assert right.tolist() == [INF, 1.015625]
    assert compare(left, right).rounded_through == "bfloat16"
    tiny = tensor([3e-7, 1.0], "bfloat16")  # 5.03 of float16's least number
    assert compare(tiny, tiny.to(torch.float16)).rounded_through == "float16"

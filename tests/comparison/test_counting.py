"""Counts of odd elements in tiny buffers of every floating dtype, held against torch's own reading of the bytes."""

import itertools

import pytest
import torch

from ckptcheck.comparison.counting import counted, part_dtype

ODD = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1.5, -2.0)
DTYPES = ("float16", "bfloat16", "float32", "float64", "float8_e5m2", "float8_e4m3fn")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_few_elements_are_counted_as_torch_reads_them(dtype: str, size: int) -> None:
    for values in itertools.product(ODD, repeat=size):
        tensor = torch.tensor(values).to(getattr(torch, dtype))
        seen = tensor.double()
        odd = [place for place, one in enumerate(seen.tolist()) if not torch.tensor(one).isfinite()]
        below = [place for place, one in enumerate(seen.tolist()) if one < 0]
        ((begin, found),) = counted(memoryview(tensor.view(torch.uint8).numpy().tobytes()), dtype)
        finite = seen[seen.isfinite()]
        assert (begin, found.numel, found.nan) == (0, size, int(seen.isnan().sum()))
        assert (found.inf, found.minus_inf) == (int((seen == torch.inf).sum()), int((seen == -torch.inf).sum()))
        assert (found.zeros, found.negative) == (int((seen == 0).sum()), len(below))
        assert (found.first, found.first_negative) == (min(odd, default=None), min(below, default=None))
        assert found.largest == (finite.abs().max().item() if len(finite) else 0.0)


@pytest.mark.parametrize(("dtype", "part"), [
    ("complex64", "float32"), ("complex128", "float64"), ("bfloat16", "bfloat16"), ("int64", None), ("bool", None),
])  # fmt: skip
def test_complex_numbers_are_counted_by_their_parts_and_integers_not_at_all(dtype: str, part: str | None) -> None:
    assert part_dtype(dtype) == part

"""The digest of a rounded tensor is that of what torch's own casts leave."""

from pathlib import Path

import pytest
import torch
from xxhash import xxh3_128

from ckptcheck.comparison.narrowed_digest import narrowed_digest, narrower_than
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import RawTensor
from ckptcheck.state.tensor import TensorSpec


def stored(tensor: torch.Tensor, folder: Path) -> RawTensor:
    torch.save({"one": tensor}, folder / "one.pt")
    found = read_raw(folder / "one.pt").root["one"]
    assert isinstance(found, RawTensor)
    return found


def content(tensor: torch.Tensor) -> bytes:
    return xxh3_128(tensor.contiguous().view(torch.uint8).numpy().tobytes()).digest()


PAIRS = [(wide, name) for wide in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
         for name in narrower_than(TensorSpec(str(wide).removeprefix("torch."), (1,)))]  # fmt: skip


@pytest.mark.parametrize(("wide", "narrow"), PAIRS)
def test_it_is_what_a_cast_to_and_fro_leaves(wide, narrow, tmp_path):
    values = (torch.randn(5, 41, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 3).to(wide)
    found = narrowed_digest(stored(values, tmp_path), narrow)
    assert found is not None
    assert found.value == content(values.to(getattr(torch, narrow)).to(wide))
    assert found.value != content(values)


def test_a_tensor_of_several_pieces_has_one_digest(tmp_path):
    values = torch.randn(3, 700_001, generator=torch.Generator().manual_seed(4))  # 8.4 MB, pieces of 4 MiB
    found = narrowed_digest(stored(values, tmp_path), "bfloat16")
    assert found is not None
    assert found.value == content(values.bfloat16().float())


@pytest.mark.parametrize("values", [torch.full((40,), 1e-9), torch.ones(3, 2), torch.zeros(5), torch.zeros(0)])
def test_what_becomes_one_number_says_nothing(values, tmp_path):
    assert narrowed_digest(stored(values, tmp_path), "float8_e5m2") is None


def test_only_narrower_dtypes_are_asked_for():
    assert set(narrower_than(TensorSpec("float32", (1,)))) == {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
    assert narrower_than(TensorSpec("int64", (1,))) == ()
    assert narrower_than(TensorSpec("float8_e5m2", (1,))) == ()

"""Means of squares that can, and that cannot, have grown out of others; made by the rule of the mean itself."""

import pytest
import torch

from ckptcheck.comparison.continuity import can_follow
from ckptcheck.readers.reading import read_raw
from ckptcheck.state.raw import RawTensor

BETA = 0.99


def _refs(folder, *tensors):
    torch.save(list(tensors), folder / "t.pt")
    return [one for one in read_raw(folder / "t.pt").root if isinstance(one, RawTensor)]


def _averaged(start, updates):
    generator = torch.Generator().manual_seed(3)
    for _ in range(updates):
        gradient = torch.randn(start.shape, generator=generator) * 1e-4
        start = BETA * start + (1 - BETA) * gradient**2
    return start


@pytest.mark.parametrize("updates", [0, 1, 50])
def test_a_mean_follows_from_itself_and_not_from_a_larger_one(tmp_path, updates):
    before = torch.rand(40, generator=torch.Generator().manual_seed(1))
    refs = _refs(tmp_path, before, _averaged(before, updates), 2 * before)
    kept = BETA**updates
    assert can_follow(refs[0], refs[1], kept) is True
    assert can_follow(refs[2], refs[1], kept) is False


def test_other_shapes_and_dtypes_tell_nothing(tmp_path):
    refs = _refs(tmp_path, torch.ones(4), torch.ones(5), torch.ones(4, dtype=torch.float64))
    assert can_follow(refs[0], refs[1], 0.9) is None
    assert can_follow(refs[0], refs[2], 0.9) is None
    assert can_follow(refs[2], refs[2], 0.9) is None
    assert can_follow(None, refs[0], 0.9) is None

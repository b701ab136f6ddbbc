"""What torch's strict load lets a pickle name, held against torch's own list."""

import collections
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import _weights_only_unpickler

from ckptcheck.readers.reading import read_raw
from ckptcheck.rules.weights_only import ALLOWED, refused


def test_the_list_is_torchs_own():
    assert set(_weights_only_unpickler._get_allowed_globals()) == ALLOWED


VALUES: dict[str, tuple[Any, str]] = {
    "a number of numpy's": (np.float64(1.5), "numpy._core.multiarray.scalar"),
    "an array": (np.zeros(2), "numpy.ndarray"),
    "a frozen set": (frozenset({1}), "__builtin__.frozenset"),
    "a default dict": (collections.defaultdict(list), "collections.defaultdict"),
    "a set": ({1}, ""),
    "a complex number": (1j, ""),
    "a counter": (collections.Counter("aab"), ""),
    "a parameter": (torch.nn.Parameter(torch.ones(2)), ""),
    "a sparse tensor in a dict": ({"a": torch.eye(2).to_sparse()}, ""),
}


@pytest.mark.parametrize("what", VALUES)
def test_a_value_is_refused_where_torch_refuses_it(what: str, tmp_path: Path):
    value, name = VALUES[what]
    path = tmp_path / "value.pt"
    torch.save(value, path)
    found = refused(one.name for one in read_raw(path).globals)
    assert (name in found) if name else found == []
    if not name:
        torch.load(path, weights_only=True)
        return
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(path, weights_only=True)


@pytest.mark.parametrize(
    "name",
    ["torch.distributed.tensor.DTensor", "torchao.optim.subclass_8bit.OptimState8bit", "__builtin__.getattr",
     "mmengine.logging.history_buffer.HistoryBuffer", "__main__.Net"],
)  # fmt: skip
def test_of_packages_that_may_add_their_own_nothing_is_said(name: str):
    assert refused([name]) == []

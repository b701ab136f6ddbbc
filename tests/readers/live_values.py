"""What torch or python itself reads from a file, held against a raw value."""

from collections.abc import Mapping
from typing import Any

import torch

from ckptcheck.state.raw import RawTensor
from tests.readers.safetensors_bytes import bytes_of


def assert_same(raw: Any, live: Any, path: str = "") -> int:
    """Every tensor byte for byte, every plain value with its type; returns how many leaves were compared."""
    if isinstance(live, torch.Tensor):
        assert isinstance(raw, RawTensor), path
        spec = (str(live.dtype).removeprefix("torch."), tuple(live.shape))
        assert (raw.spec.dtype, raw.spec.shape) == spec, path
        assert bytes(raw.fetch()) == bytes_of(live), path
        return 1
    if isinstance(live, Mapping):
        assert isinstance(raw, Mapping), path
        assert list(raw) == list(live), path
        return sum(assert_same(raw[key], live[key], f"{path}.{key}") for key in live)
    if isinstance(live, list | tuple):
        assert type(raw) is type(live), path
        assert len(raw) == len(live), path
        pairs = zip(raw, live, strict=True)
        return sum(assert_same(one, other, f"{path}[{place}]") for place, (one, other) in enumerate(pairs))
    assert type(raw) is type(live), path
    assert raw == live, path
    return 1

"""What torch or python itself reads from a file, held against a raw value."""

from collections.abc import Mapping
from typing import Any

import torch

from ckptcheck.state.raw import RawTensor


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Logical row-major bytes as torch knows them."""
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if tensor.dtype == torch.float4_e2m1fn_x2:  # which torch does not copy
        tensor = tensor.view(torch.uint8)
    plain = torch.empty(tensor.shape, dtype=tensor.dtype)
    plain.copy_(tensor.detach().resolve_conj().resolve_neg())
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


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


def assert_same_tensors(root: Any, wanted: Mapping[str, torch.Tensor]) -> None:
    """The same names in any order, and every tensor byte for byte."""
    assert set(root) == set(wanted)
    assert_same({name: root[name] for name in wanted}, wanted)

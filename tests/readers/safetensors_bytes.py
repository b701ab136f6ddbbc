"""safetensors files by hand, and torch's own bytes of a tensor."""

import json
from pathlib import Path
from typing import Any

import torch


def safetensors_file(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file of a header (JSON value, or the text itself) and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    """A tensor's entry in a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Logical row-major bytes, by torch alone."""
    whole = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return bytes(whole.view(torch.uint8).tolist()) if whole.numel() else b""


def assert_same_tensors(root: Any, wanted: dict[str, torch.Tensor]) -> None:
    """Names, dtypes, shapes and every byte."""
    assert set(root) == set(wanted)
    for name, tensor in wanted.items():
        spec = root[name].spec
        assert (spec.dtype, spec.shape) == (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)), name
        assert bytes(root[name].fetch()) == bytes_of(tensor), name

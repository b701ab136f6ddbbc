"""Tensors of every kind, and their content by other means than the code under test."""

from typing import Any

import numpy as np
import torch

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", "complex128", "complex64", "complex32", "int64", "int32", "int16", "int8", "uint64", "uint32",
    "uint16", "uint8", "bool",
)  # fmt: skip
SHAPES = ((), (1,), (0,), (3, 0, 2), (7,), (3, 4, 5))


def from_raw(raw: bytes, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A contiguous tensor that lies in memory exactly as `raw`."""
    kind = getattr(torch, dtype)
    if not raw:
        return torch.empty(shape, dtype=kind)
    return torch.from_numpy(np.frombuffer(raw, np.uint8).copy()).view(kind).reshape(shape)


def made(dtype: str, shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, bytes]:
    """A tensor and its bytes, which were there first."""
    count = int(np.prod(shape)) * getattr(torch, dtype).itemsize
    limit = 2 if dtype == "bool" else 256
    raw = np.random.default_rng(seed).integers(0, limit, count, dtype=np.uint8).tobytes()
    return from_raw(raw, dtype, shape), raw


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's elements as numpy holds them, of unsigned integers where numpy has no such dtype."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    size = plain.element_size()
    numbers = plain.reshape(-1).view(torch.uint8).numpy().reshape(-1, size) if plain.numel() else np.empty((0, size))
    return numbers.astype(np.uint8)

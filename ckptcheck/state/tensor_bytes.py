"""The logical row-major bytes of live tensors, and their digests. Needs torch; xxhash where it is installed."""

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Final

import torch

from ckptcheck.state.digest import LINEAR_128, XXH3_128
from ckptcheck.state.tensor import TensorSpec

_BLOCK: Final = 1 << 16
"""Elements in a block of the linear digest; bounds its scratch memory and its table of coefficients."""
_MASK: Final = (1 << 64) - 1
_SEEDS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)

_coefficients: dict[torch.device, torch.Tensor] = {}


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The tensor's dtype by torch's name and its logical shape."""
    return TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def components(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain dense tensors that together hold the content: the tensor itself for an ordinary one.

    A sparse tensor is its coalesced indices and values, a quantised one its integers and parameters, a wrapper
    subclass the tensors that it wraps. Conjugate and negative views are resolved. No data is copied where it
    need not be.
    """
    tensor = tensor.detach()
    if tensor.layout == torch.sparse_coo:
        whole = tensor.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_quantized:
        return [tensor.int_repr()]
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in components(getattr(tensor, name))]
    return [tensor.resolve_conj().resolve_neg()]


def row_major_bytes(tensor: torch.Tensor) -> memoryview:
    """The logical row-major bytes in native order, copied to the CPU where the tensor is elsewhere or strided.

    Where no copy is needed the view aliases the tensor's memory: use it up before the tensor changes.
    """
    parts = [_buffer(part.cpu().contiguous()) for part in components(tensor)]
    return memoryview(parts[0]).cast("B") if len(parts) == 1 else memoryview(b"".join(bytes(part) for part in parts))


def _buffer(tensor: torch.Tensor) -> "ctypes.Array[Any]":
    # A ctypes view costs a microsecond and knows no dtypes, unlike numpy, which has no bfloat16.
    kind = ctypes.c_ubyte * (tensor.numel() * tensor.element_size())
    if not tensor.numel():
        return kind()
    buffer = kind.from_address(tensor.data_ptr())
    buffer._owner = tensor  # type: ignore[attr-defined]
    return buffer


def digester(algorithm: str) -> Callable[[torch.Tensor], bytes]:
    """The function from a tensor to its 16 bytes of digest; ValueError for an unknown algorithm.

    XXH3_128 needs xxhash, and copies what is not contiguous on the CPU; LINEAR_128 runs where the tensor is.
    """
    if algorithm == XXH3_128:
        from xxhash import xxh3_128_digest

        return lambda tensor: bytes(xxh3_128_digest(row_major_bytes(tensor)))
    if algorithm == LINEAR_128:
        return linear_digest
    raise ValueError(f"unknown digest algorithm {algorithm!r}")


def linear_digest(tensor: torch.Tensor) -> bytes:
    """Two sums of element x coefficient modulo 2**64, the coefficient keyed by the logical position.

    Elements are taken as signed integers of at most 32 bits (wider ones as two), so that no bit is only ever
    multiplied by 2**63. The coefficient at position p = q * 65536 + r is table[r] * ratio**q, all odd: one
    changed element always changes both sums, and the sums of shards, each at its own offset, add up. Equal on
    every device.
    """
    sums = [0, 0]
    for part in components(tensor):
        for key, value in enumerate(_linear_sums(part)):
            sums[key] = (sums[key] * 3 + value) & _MASK
    return b"".join(value.to_bytes(8, "little") for value in sums)


def _linear_sums(tensor: torch.Tensor) -> list[int]:
    if not tensor.numel():
        return [0, 0]
    flat = tensor.contiguous().reshape(-1)
    width = {1: torch.int8, 2: torch.int16}.get(flat.element_size(), torch.int32)
    flat = flat.view(width) if flat.dtype != torch.bool else flat.view(torch.int8)
    table = _table(flat.device)
    totals = []
    whole = flat.numel() // _BLOCK * _BLOCK
    for start in range(0, whole, _BLOCK * 64):
        rows = flat[start : min(start + _BLOCK * 64, whole)].view(-1, _BLOCK).to(torch.int64)
        totals.append(torch.stack([(rows * table[key]).sum(1) for key in (0, 1)]))
    if whole < flat.numel():
        rest = flat[whole:].to(torch.int64)
        totals.append(torch.stack([(rest * table[key, : rest.numel()]).sum().reshape(1) for key in (0, 1)]))
    return [_fold(blocks, _SEEDS[key]) for key, blocks in enumerate(torch.cat(totals, 1).tolist())]


def _fold(blocks: list[int], ratio: int) -> int:
    total, factor = 0, 1
    for block in blocks:
        total = (total + block * factor) & _MASK
        factor = (factor * ratio) & _MASK
    return total


def _table(device: torch.device) -> torch.Tensor:
    """Odd 64-bit coefficients of shape (2, 65536), made by splitmix64 from the position; no generator is drawn from."""
    if device not in _coefficients:
        rows = [
            [_as_signed(_splitmix(seed + place * 0x632BE59BD9B4E019) | 1) for place in range(_BLOCK)] for seed in _SEEDS
        ]
        _coefficients[device] = torch.tensor(rows, dtype=torch.int64).to(device)
    return _coefficients[device]


def _splitmix(state: int) -> int:
    state &= _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def _as_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def default_algorithm(devices: set[str]) -> str:
    """XXH3_128 where every device is the CPU and xxhash is at hand, else LINEAR_128."""
    if devices <= {"cpu"} and sys.byteorder == "little":
        try:
            import xxhash  # noqa: F401
        except ImportError:
            return LINEAR_128
        return XXH3_128
    return LINEAR_128

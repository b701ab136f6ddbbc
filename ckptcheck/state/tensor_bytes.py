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
"""Where each row of coefficients starts, and the ratio from one block to the next."""
_STRIDE: Final = 0x632BE59BD9B4E019

_coefficients: dict[torch.device, torch.Tensor] = {}
_powers: dict[torch.device, torch.Tensor] = {}


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """The tensor's dtype by torch's name and its logical shape; of a nested tensor, the shape of all its values."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(dtype, tuple(tensor.values().shape if tensor.is_nested else tensor.shape))


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor is an ordinary one, whose logical row-major bytes are all of its content."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and not (tensor.is_quantized or tensor.is_nested)
    )


def components(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain dense tensors that together hold the content: the tensor itself for an ordinary one.

    A sparse tensor is its coalesced indices and values, a quantised one its integers and parameters, a nested one
    its values and sizes, a wrapper subclass the tensors that it wraps. Conjugate and negative views are resolved.
    No data is copied where it need not be.
    """
    tensor = tensor.detach()
    return [tensor.resolve_conj().resolve_neg()] if is_dense(tensor) else _components_of_other(tensor)


def _components_of_other(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout == torch.sparse_coo:
        whole = tensor.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_quantized:
        return [tensor.int_repr(), *_quantisation(tensor)]
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in components(getattr(tensor, name))]
    if tensor.is_nested:
        return [tensor._nested_tensor_size(), tensor.values()]
    if tensor.layout == torch._mkldnn:  # type: ignore[attr-defined]
        return [tensor.to_dense()]
    return [tensor.resolve_conj().resolve_neg()]


def _quantisation(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        parameters = [tensor.q_scale(), float(tensor.q_zero_point())]
        return [torch.tensor(parameters, dtype=torch.float64, device=tensor.device)]
    axis = torch.tensor(tensor.q_per_channel_axis(), dtype=torch.int64, device=tensor.device)
    return [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points(), axis]


def row_major_bytes(tensor: torch.Tensor) -> memoryview:
    """The logical row-major bytes in native order, copied to the CPU where the tensor is elsewhere or strided.

    Where no copy is needed the view aliases the tensor's memory: use it up before the tensor changes. Of a tensor
    that is not dense (see `is_dense`) they are the bytes of its components, one after the other.
    """
    return memoryview(_bytes_of(components(tensor))).cast("B")


def _bytes_of(parts: list[torch.Tensor]) -> "ctypes.Array[Any] | bytes":
    buffers = [contiguous_bytes(part.cpu().contiguous()) for part in parts]
    return buffers[0] if len(buffers) == 1 else b"".join(bytes(buffer) for buffer in buffers)


def contiguous_bytes(tensor: torch.Tensor) -> "ctypes.Array[Any]":
    """The memory of a plain, contiguous tensor of the CPU, which it holds."""
    # A ctypes view costs a microsecond and knows no dtypes, unlike numpy, which has no bfloat16.
    kind = ctypes.c_ubyte * tensor.nbytes
    if not tensor.nbytes:
        return kind()
    buffer = kind.from_address(tensor.data_ptr())
    buffer._owner = tensor  # type: ignore[attr-defined]
    return buffer


def digester(algorithm: str) -> Callable[[torch.Tensor], bytes]:
    """The function from a tensor to its 16 bytes of digest; ValueError for an unknown algorithm.

    XXH3_128 needs xxhash, and copies what is not contiguous on the CPU; LINEAR_128 runs where the tensor is.
    """
    digest = parts_digester(algorithm)
    return lambda tensor: digest(components(tensor))


def parts_digester(algorithm: str) -> Callable[[list[torch.Tensor]], bytes]:
    """As `digester`, from the components of a tensor."""
    if algorithm == XXH3_128:
        of_bytes = bytes_digester(algorithm)
        return lambda parts: of_bytes(_bytes_of(parts))
    if algorithm == LINEAR_128:
        return _linear_digest
    raise ValueError(f"unknown digest algorithm {algorithm!r}")


def bytes_digester(algorithm: str) -> Callable[[Any], bytes]:
    """The function from row-major bytes to their digest; ValueError where the algorithm needs more than bytes."""
    if algorithm != XXH3_128:
        raise ValueError(f"{algorithm!r} is no digest of bytes")
    from xxhash import xxh3_128_digest

    digest: Callable[[Any], bytes] = xxh3_128_digest
    return digest


def linear_digest(tensor: torch.Tensor) -> bytes:
    """Two sums of element x coefficient modulo 2**64, the coefficient keyed by the logical position.

    Elements are taken as signed integers of at most 32 bits (wider ones as two), so that no bit is only ever
    multiplied by 2**63. The coefficient at position p = q * 65536 + r is table[r] * ratio**q, all odd: one
    changed element always changes both sums. Equal on every device. Linear: where shards are laid into zeros of
    the whole shape, each 64-bit half of their digests adds up, modulo 2**64, to that of the whole.

    Each half is little-endian. With more than one component, each one's sums are added to three times the sums
    of those before it.
    """
    return _linear_digest(components(tensor))


def _linear_digest(parts: list[torch.Tensor]) -> bytes:
    return sums_to_digest(linear_sums(parts).tolist())


def sums_to_digest(sums: list[int]) -> bytes:
    """The 16 bytes of the linear digest from its two signed sums."""
    return b"".join((value & _MASK).to_bytes(8, "little") for value in sums)


def linear_sums(parts: list[torch.Tensor]) -> torch.Tensor:
    """The two sums of the linear digest of components, of shape (2,), int64, on their device, which is not waited for.

    `components` says what they are: there is one at least.
    """
    sums = _sums_of(parts[0])
    for part in parts[1:]:
        sums = sums * 3 + _sums_of(part).to(sums.device)
    return sums


def _sums_of(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.numel():
        return torch.zeros(2, dtype=torch.int64, device=tensor.device)
    flat = tensor.contiguous().reshape(-1)
    width = {1: torch.int8, 2: torch.int16}.get(flat.element_size(), torch.int32)
    flat = flat.view(width)
    table = _table(flat.device)
    totals = []
    whole = flat.numel() // _BLOCK * _BLOCK
    # Scratch memory that stays in a processor's cache; a device gets much to do at once.
    rows_at_once = _BLOCK * (2 if flat.device.type == "cpu" else 64)
    for start in range(0, whole, rows_at_once):
        rows = flat[start : min(start + rows_at_once, whole)].view(-1, _BLOCK).to(torch.int64)
        totals.append(torch.stack([(rows * table[key]).sum(1) for key in (0, 1)]))
    if whole < flat.numel():
        rest = flat[whole:].to(torch.int64)
        totals.append((rest * table[:, : rest.numel()]).sum(1, keepdim=True))
    blocks = torch.cat(totals, 1) if len(totals) > 1 else totals[0]
    if blocks.shape[1] == 1:
        return blocks[:, 0]
    return (blocks * _ratios(blocks.device, blocks.shape[1])).sum(1)


def _ratios(device: torch.device, count: int) -> torch.Tensor:
    """The factors of `count` blocks, of shape (2, count): powers of the seeds modulo 2**64."""
    known = _powers.get(device)
    if known is None or known.shape[1] < count:
        rows = []
        for seed in _SEEDS:
            row = [1]
            while len(row) < 2 * count:
                row.append((row[-1] * seed) & _MASK)
            rows.append([_as_signed(value) for value in row])
        known = _powers[device] = torch.tensor(rows, dtype=torch.int64, device="cpu").to(device)
    return known[:, :count]


def _table(device: torch.device) -> torch.Tensor:
    """Odd 64-bit coefficients of shape (2, 65536), made by splitmix64 from the position; no generator is drawn from."""
    if device not in _coefficients:
        places = torch.arange(_BLOCK, dtype=torch.int64, device="cpu") * _as_signed(_STRIDE)
        rows = [_splitmix(places + _as_signed(seed)) | 1 for seed in _SEEDS]
        _coefficients[device] = torch.stack(rows).to(device)
    return _coefficients[device]


def _splitmix(state: torch.Tensor) -> torch.Tensor:
    """The finishing of splitmix64 (Steele, Lea and Flood, 2014), on 64-bit integers that wrap around."""
    state = (state ^ _shifted(state, 30)) * _as_signed(0xBF58476D1CE4E5B9)
    state = (state ^ _shifted(state, 27)) * _as_signed(0x94D049BB133111EB)
    return state ^ _shifted(state, 31)


def _shifted(state: torch.Tensor, bits: int) -> torch.Tensor:
    # torch's integers are signed, and its shift to the right keeps the sign.
    return (state >> bits) & ((1 << (64 - bits)) - 1)


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

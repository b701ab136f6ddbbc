"""Samples in the making where the tensors are: nothing waits for a device until one transfer brings all of them.

What is taken is what the tensors hold where the device stands in its work; they may change afterwards.
"""

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tensor_bytes import linear_sums, sums_to_digest
from ckptcheck.state.training_state import Scalar
from ckptcheck.trace.items import NONZERO, ZERO, Sample

AS_IT_IS: Final = frozenset({torch.float64, torch.float32, torch.complex64, torch.complex128})
"""Dtypes whose norm is taken in their own precision."""
_FORMATS: Final = {torch.float32: "=f", torch.float64: "=d"}


@dataclass(slots=True)
class Making:
    """One sample in the making: `pieces` are bytes on the device, in the order digest, norms, element, presence.

    `norms` are the dtypes of its norms, one a component; `element` the dtype of its only element; None where it has
    more.
    """

    spec: TensorSpec
    pieces: list[torch.Tensor]
    norms: list[torch.dtype] = field(default_factory=list)
    element: torch.dtype | None = None
    gradient: bool = False


def make(spec: TensorSpec, parts: list[torch.Tensor], *, gradient: bool, norm: bool) -> Making:
    """Begin a sample of components, with the linear digest; `norm` is whether it may have one."""
    making = Making(spec, [_bytes(linear_sums(parts))], gradient=gradient)
    if len(parts) == 1 and parts[0].numel() == 1:
        making.element = parts[0].dtype
        making.pieces.append(_bytes(parts[0].clone()))  # the others are results, and nobody else's memory
    elif norm:
        norms = norms_of(parts)
        making.norms = [one.dtype for one in norms]
        making.pieces += [_bytes(one) for one in norms]
    if gradient:
        making.pieces.append(_bytes(_present(parts[-1], making)))
    return making


def _present(part: torch.Tensor, making: Making) -> torch.Tensor:
    """Whether anything in it is not zero, of shape (). On the CPU a norm says so at a fraction of the cost."""
    if part.device.type == "cpu" and len(making.norms) == 1 and any(making.pieces[1].tolist()):
        return torch.ones((), dtype=torch.bool, device="cpu")
    return calculable(part).any()


def norms_of(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """The L2 norm of each component that is floating or complex, in float32 at least, each of shape ()."""
    return [
        torch.linalg.vector_norm(calculable(part), dtype=wide(part.dtype))
        for part in parts
        if part.is_floating_point() or part.is_complex()
    ]


def calculable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in float32 where it has eight bits: torch stores such numbers, but does not calculate with them."""
    narrow = tensor.is_floating_point() and tensor.element_size() == 1
    return tensor.to(torch.float32) if narrow else tensor


def wide(dtype: torch.dtype) -> torch.dtype | None:
    """The dtype in which a norm is taken; None for the tensor's own."""
    if dtype in AS_IT_IS:
        return None
    return torch.complex64 if dtype.is_complex else torch.float32


def number(value: Any) -> Scalar:
    """The value of an element as a trace keeps it: integers of 64 bits with a sign, larger ones as texts."""
    if isinstance(value, int) and value >= 1 << 63:
        return str(value)
    return value if isinstance(value, bool | int | float) else str(value)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


class Transfer:
    """All samples in the making on their way to the CPU: one copy a device, begun at once and waited for once."""

    def __init__(self, makings: Sequence[Making]) -> None:
        self._makings = makings
        pieces: dict[torch.device, list[torch.Tensor]] = {}
        for making in makings:
            for piece in making.pieces:
                pieces.setdefault(piece.device, []).append(piece)
        self._sizes = [[(piece.device, piece.numel()) for piece in making.pieces] for making in makings]
        self._copies = {device: _copied(torch.cat(found)) for device, found in pieces.items()}
        for making in makings:
            making.pieces = []

    def samples(self) -> list[Sample]:
        """The samples, in the order in which they were made; waits for the copies."""
        content = {}
        for device, (copy, arrived) in self._copies.items():
            if arrived is not None:
                arrived.synchronize()
            content[device] = ctypes.string_at(copy.data_ptr(), copy.nbytes)
        at = dict.fromkeys(content, 0)
        samples = []
        for making, sizes in zip(self._makings, self._sizes, strict=True):
            pieces = []
            for device, size in sizes:
                pieces.append(content[device][at[device] : at[device] + size])
                at[device] += size
            samples.append(_sample(making, pieces))
        return samples


def _copied(pool: torch.Tensor) -> tuple[torch.Tensor, Any]:
    if pool.device.type != "cuda":
        return pool.cpu(), None
    copy = torch.empty(pool.shape, dtype=pool.dtype, device="cpu", pin_memory=True)
    copy.copy_(pool, non_blocking=True)
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(pool.device))
    return copy, arrived


def _sample(making: Making, pieces: list[bytes]) -> Sample:
    digest = sums_to_digest(list(struct.unpack("=2q", pieces[0])))
    presence = (NONZERO if any(pieces[-1]) else ZERO) if making.gradient else None
    if making.element is not None:
        element = torch.frombuffer(bytearray(pieces[1]), dtype=making.element)
        return Sample(making.spec, digest, presence, value=number(element.item()))
    norms = [struct.unpack(_FORMATS[dtype], piece)[0] for dtype, piece in zip(making.norms, pieces[1:], strict=False)]
    return Sample(making.spec, digest, presence, norm=math.hypot(*norms) if norms else None)

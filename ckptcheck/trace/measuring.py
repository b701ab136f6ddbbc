"""From a live tensor or value to a sample. Draws no random number and keeps no tensor."""

import hashlib
import math
from typing import Any, Final

import torch

from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tensor_bytes import components, digester, spec_of
from ckptcheck.state.training_state import Scalar
from ckptcheck.state.tree import canonical
from ckptcheck.trace.items import NONE, NONZERO, ZERO, Sample

PLAIN_DIGEST: Final = "blake2b_128"
"""The digest of plain values, over their canonical text."""


class Measurer:
    """Makes samples with one digest algorithm."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self._digest = digester(algorithm)
        self._specs: dict[tuple[torch.dtype, torch.Size], TensorSpec] = {}

    def leaf(self, leaf: Any) -> Sample:
        """A sample of a tensor, or of anything else as a plain value."""
        return self.tensor(leaf) if isinstance(leaf, torch.Tensor) else plain(leaf)

    def tensor(self, tensor: torch.Tensor) -> Sample:
        """Spec and digest; the value of a one-element tensor; the norm of a larger floating one."""
        tensor = tensor.detach()
        spec, digest = self._spec(tensor), self._digest(tensor)
        if tensor.numel() == 1 and tensor.layout == torch.strided and not tensor.is_quantized:
            return Sample(spec, digest, value=_number(tensor.item()))
        return Sample(spec, digest, norm=l2_norm(tensor))

    def gradient(self, gradient: torch.Tensor | None) -> Sample:
        """As `tensor`, with presence: none, zero and nonzero are three things."""
        if gradient is None:
            return Sample(None, None, NONE)
        sample = self.tensor(gradient)
        size = sample.norm if sample.norm is not None else sample.value
        # The squares of tiny values underflow in the norm, so a zero norm is not yet a zero gradient.
        zero = size == 0 and not any(bool(part.any()) for part in components(gradient)[-1:])
        return sample._replace(presence=ZERO if zero else NONZERO)

    def _spec(self, tensor: torch.Tensor) -> TensorSpec:
        key = (tensor.dtype, tensor.shape)
        spec = self._specs.get(key)
        if spec is None:
            if len(self._specs) > 10_000:  # shapes that never repeat must not grow the memory
                self._specs.clear()
            spec = self._specs[key] = spec_of(tensor)
        return spec


def plain(value: Any) -> Sample:
    """A sample of a plain value: by its number where it is one, else by its canonical text."""
    text = canonical(value)
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if isinstance(value, bool | int | float) and abs(value) < 2**53:
        return Sample(None, digest, value=value)
    return Sample(None, digest, value=value if isinstance(value, str) else text)


def l2_norm(tensor: torch.Tensor) -> float | None:
    """The L2 norm of a floating or complex tensor, in float32 at least; None for other dtypes."""
    norms = [
        torch.linalg.vector_norm(part, dtype=_wide(part.dtype))
        for part in components(tensor)
        if part.is_floating_point() or part.is_complex()
    ]
    return math.hypot(*(float(norm) for norm in norms)) if norms else None


def _wide(dtype: torch.dtype) -> torch.dtype | None:
    if dtype in (torch.float64, torch.float32, torch.complex64, torch.complex128):
        return None
    return torch.complex64 if dtype.is_complex else torch.float32


def _number(value: Any) -> Scalar:
    return value if isinstance(value, bool | int | float) else str(value)

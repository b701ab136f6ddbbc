"""From a live tensor or value to a sample. Draws no random number and keeps no tensor."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, peek_interpreter_stack
from torch.nn.parameter import is_lazy

from ckptcheck.state.digest import plain_digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tensor_bytes import components, parts_digester, spec_of
from ckptcheck.state.training_state import Scalar
from ckptcheck.state.tree import canonical
from ckptcheck.trace.items import NONE, NONZERO, ZERO, Sample

_AS_IT_IS: Final = frozenset({torch.float64, torch.float32, torch.complex64, torch.complex128})
UNINITIALISED: Final = "<uninitialised>"
"""The value of a parameter or buffer that a lazy module has yet to shape."""


class Measurer:
    """Makes samples with one digest algorithm."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self._digest = parts_digester(algorithm)
        self._specs: dict[tuple[torch.dtype, torch.Size], TensorSpec] = {}

    def leaf(self, leaf: Any) -> Sample:
        """A sample of a tensor, or of anything else as a plain value."""
        return self.tensor(leaf) if isinstance(leaf, torch.Tensor) else plain(leaf)

    def tensor(self, tensor: torch.Tensor) -> Sample:
        """Spec and digest; the value of a one-element tensor; the norm of a larger floating one.

        A parameter that a lazy module has yet to shape is a plain value; a tensor on the device "meta" has no
        content, and its digest is zero.
        """
        if is_lazy(tensor):
            return plain(UNINITIALISED)
        return self._sample(tensor, components(tensor)) if not tensor.is_meta else Sample(self._spec(tensor), bytes(16))

    def gradient(self, gradient: torch.Tensor | None) -> Sample:
        """As `tensor`, with presence: none, zero and nonzero are three things."""
        if gradient is None:
            return Sample(None, None, NONE)
        if gradient.is_meta:
            return self.tensor(gradient)._replace(presence=ZERO)
        parts = components(gradient)
        sample = self._sample(gradient, parts)
        size = sample.norm if sample.norm is not None else sample.value
        # The squares of tiny values underflow in the norm, so a zero norm is not yet a zero gradient.
        sized = isinstance(size, int | float) and size != 0
        return sample._replace(presence=NONZERO if sized or bool(_calculable(parts[-1]).any()) else ZERO)

    def _sample(self, tensor: torch.Tensor, parts: list[torch.Tensor]) -> Sample:
        spec, digest = self._spec(tensor), self._digest(parts)
        if len(parts) == 1 and parts[0].numel() == 1:
            return Sample(spec, digest, value=_number(parts[0].item()))
        return Sample(spec, digest, norm=None if tensor.is_quantized else _norm(parts))

    def _spec(self, tensor: torch.Tensor) -> TensorSpec:
        if tensor.is_nested:
            return spec_of(tensor)
        key = (tensor.dtype, tensor.shape)
        spec = self._specs.get(key)
        if spec is None:
            if len(self._specs) > 10_000:  # shapes that never repeat must not grow the memory
                self._specs.clear()
            spec = self._specs[key] = spec_of(tensor)
        return spec


def outside_transforms() -> AbstractContextManager[Any]:
    """A context in which no transform of torch.func is in force, for tensors that are `unwrapped`."""
    if peek_interpreter_stack() is None:
        return nullcontext()
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def unwrapped(leaf: Any) -> Any:
    """A tensor without what torch.func wraps around it inside of vmap or grad, anything else as it is."""
    while isinstance(leaf, torch.Tensor) and is_functorch_wrapped_tensor(leaf):
        leaf = get_unwrapped(leaf)
    return leaf


def plain(value: Any) -> Sample:
    """A sample of a plain value: by its number where it is one, else by its canonical text."""
    text = canonical(value)
    digest = plain_digest(text)
    if isinstance(value, bool | int | float) and abs(value) < 2**53:
        return Sample(None, digest, value=value)
    return Sample(None, digest, value=value if isinstance(value, str) else text)


def _norm(parts: list[torch.Tensor]) -> float | None:
    """The L2 norm of what is floating or complex, in float32 at least; None where nothing is."""
    if len(parts) == 1 and parts[0].dtype in _AS_IT_IS:  # nearly all, and this is taken of every tensor at every step
        return float(torch.linalg.vector_norm(parts[0]))
    norms = [
        float(torch.linalg.vector_norm(_calculable(part), dtype=_wide(part.dtype)))
        for part in parts
        if part.is_floating_point() or part.is_complex()
    ]
    return math.hypot(*norms) if norms else None


def _calculable(tensor: torch.Tensor) -> torch.Tensor:
    # torch stores numbers of eight bits, but does not calculate with them.
    narrow = tensor.is_floating_point() and tensor.element_size() == 1
    return tensor.to(torch.float32) if narrow else tensor


def _wide(dtype: torch.dtype) -> torch.dtype | None:
    if dtype in _AS_IT_IS:
        return None
    return torch.complex64 if dtype.is_complex else torch.float32


def _number(value: Any) -> Scalar:
    # A trace keeps integers of 64 bits with a sign; larger ones are texts.
    if isinstance(value, int) and value >= 1 << 63:
        return str(value)
    return value if isinstance(value, bool | int | float) else str(value)

"""From a live tensor or value to a sample. Draws no random number and keeps no tensor."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, Final

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, peek_interpreter_stack
from torch.nn.parameter import is_lazy

from ckptcheck.state.digest import LINEAR_128, plain_digest
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.tensor_bytes import (
    bytes_digester,
    components,
    contiguous_bytes,
    is_dense,
    parts_digester,
    spec_of,
)
from ckptcheck.state.tree import canonical
from ckptcheck.trace.items import NONE, NONZERO, ZERO, Sample
from ckptcheck.trace.staging import Making, Transfer, calculable, make, norms_of, number

UNINITIALISED: Final = "<uninitialised>"
"""The value of a parameter or buffer that a lazy module has yet to shape."""
_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter})
_TOGETHER: Final = frozenset({torch.float32, torch.float64})
"""Dtypes of which many norms are taken in one call of torch."""


class Measurer:
    """Makes samples with one digest algorithm."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self._digest = parts_digester(algorithm)
        self._specs: dict[tuple[torch.dtype, torch.Size], TensorSpec] = {}

    @cached_property
    def _digest_of_bytes(self) -> Callable[[Any], bytes]:
        return bytes_digester(self.algorithm)

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
        return _with_presence(self._sample(gradient, parts), parts[-1])

    def digest(self, tensor: torch.Tensor) -> bytes:
        """The digest alone."""
        return self._digest(components(tensor))

    def tensors(self, tensors: Sequence[torch.Tensor], *, gradients: bool = False) -> list[Sample]:
        """As `tensor`, or as `gradient`, of each; cheaper than one by one."""
        if self.algorithm == LINEAR_128:
            return self._by_transfer(tensors, gradients=gradients)
        samples: list[Sample | None] = [None] * len(tensors)
        normed: list[tuple[int, torch.Tensor]] = []
        single: list[tuple[int, torch.Tensor]] = []
        for place, tensor in enumerate(tensors):
            if _is_single(tensor):
                single.append((place, tensor))
            elif not _is_usual(tensor):
                samples[place] = self.gradient(tensor) if gradients else self.tensor(tensor)
            else:
                normed.append((place, tensor))
        with torch.no_grad():  # cheaper than to detach each one, which besides lets go of python's lock
            for places, found in ((normed, self._many(normed)), (single, self._many_single(single))):
                for (place, tensor), sample in zip(places, found, strict=True):
                    samples[place] = _with_presence(sample, tensor) if gradients else sample
        return [sample for sample in samples if sample is not None]

    def _many(self, placed: list[tuple[int, torch.Tensor]]) -> Iterator[Sample]:
        """Samples of usual tensors. One call of torch takes all norms, at a fifth of the cost of as many calls."""
        norms = torch.stack(torch._foreach_norm([tensor for _, tensor in placed])).tolist() if placed else ()
        for (_, tensor), norm in zip(placed, norms, strict=True):
            digest = self._digest_of_bytes(contiguous_bytes(tensor))
            if tensor.numel() == 1:
                yield Sample(self._spec(tensor), digest, value=tensor.item())
            else:
                yield Sample(self._spec(tensor), digest, norm=norm)

    def _many_single(self, placed: list[tuple[int, torch.Tensor]]) -> Iterator[Sample]:
        """Samples of usual tensors of shape () and float32, as the counters of an optimizer: mostly of one value."""
        if not placed:
            return
        values = torch.stack([tensor for _, tensor in placed])
        content = bytes(contiguous_bytes(values))
        spec = self._spec(placed[0][1])  # of one shape and dtype, all of them
        digests: dict[bytes, bytes] = {}
        for place, value in enumerate(values.tolist()):
            own = content[4 * place : 4 * place + 4]
            digest = digests.get(own) or digests.setdefault(own, self._digest_of_bytes(own))
            yield Sample(spec, digest, value=value)

    def make(self, tensor: torch.Tensor, *, gradient: bool = False) -> Making | None:
        """Begin a sample of a tensor where it is, for a `Transfer`; None for what is no matter of a device."""
        if is_lazy(tensor) or tensor.is_meta or self.algorithm != LINEAR_128:
            return None
        parts = components(tensor)
        return make(self._spec(tensor), parts, gradient=gradient, norm=not tensor.is_quantized)

    def _by_transfer(self, tensors: Sequence[torch.Tensor], *, gradients: bool) -> list[Sample]:
        makings = [self.make(tensor, gradient=gradients) for tensor in tensors]
        made = iter(Transfer([making for making in makings if making is not None]).samples())
        one_by_one = self.gradient if gradients else self.tensor
        return [
            next(made) if making is not None else one_by_one(tensor)
            for tensor, making in zip(tensors, makings, strict=True)
        ]

    def _sample(self, tensor: torch.Tensor, parts: list[torch.Tensor]) -> Sample:
        spec, digest = self._spec(tensor), self._digest(parts)
        if len(parts) == 1 and parts[0].numel() == 1:
            return Sample(spec, digest, value=number(parts[0].item()))
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


def _with_presence(sample: Sample, part: torch.Tensor) -> Sample:
    """A gradient's sample, from that of a tensor and its last component."""
    size = sample.norm if sample.norm is not None else sample.value
    # The squares of tiny values underflow in the norm, so a zero norm is not yet a zero gradient.
    sized = isinstance(size, int | float) and size != 0
    return sample._replace(presence=NONZERO if sized or bool(calculable(part).any()) else ZERO)


def _norm(parts: list[torch.Tensor]) -> float | None:
    """The L2 norm of what is floating or complex, in float32 at least; None where nothing is."""
    norms = [float(norm) for norm in norms_of(parts)]
    return (math.hypot(*norms) if len(norms) > 1 else norms[0]) if norms else None


def _is_single(tensor: torch.Tensor) -> bool:
    """Whether it is one number of float32 on the CPU, as the counters of an optimizer."""
    return (
        type(tensor) in _PLAIN
        and tensor.dtype is torch.float32
        and tensor.dim() == 0
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_neg()
    )


def _is_usual(tensor: torch.Tensor) -> bool:
    """Whether it is one of the tensors that come by the hundred: dense, contiguous, on the CPU, of float32 or more."""
    return (
        tensor.dtype in _TOGETHER
        and tensor.device.type == "cpu"
        and is_dense(tensor)
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )

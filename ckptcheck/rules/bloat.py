"""Storages of which a checkpoint keeps much more than its tensors use."""

import math
from dataclasses import dataclass
from typing import Final

from ckptcheck.state.raw import RawTensor, RawTree, Storage, tensors_in
from ckptcheck.state.tensor import ITEMSIZE_BYTES
from ckptcheck.state.tree import flatten

MIN_FACTOR: Final = 2
"""A storage is bloated where it is at least this many times as long as what its tensors use."""
MIN_WASTED_BYTES: Final = 1 << 20
MIN_WASTED_SHARE: Final = 0.5
"""Bloat is told where all of it is `MIN_WASTED_BYTES` or this share of the checkpoint: small views are everywhere."""


@dataclass(frozen=True, slots=True)
class Bloat:
    """A storage, the bytes of it that tensors use, and the path of one of these tensors."""

    storage: Storage
    used: int
    path: str

    @property
    def wasted(self) -> int:
        """Bytes that no tensor uses."""
        return self.storage.nbytes - self.used


def bloated(raw: RawTree) -> list[Bloat]:
    """The bloated storages in the order of the checkpoint, none where they waste too little to speak of."""
    used = used_bytes(raw)
    found = [one for one, bytes_used in used.items() if one.nbytes >= max(MIN_FACTOR * bytes_used, 1)]
    wasted = sum(one.nbytes - used[one] for one in found)
    if wasted < MIN_WASTED_BYTES and wasted < MIN_WASTED_SHARE * raw.nbytes:
        return []
    paths: dict[Storage, str] = {}
    for path, leaf in flatten(raw.root):
        if isinstance(leaf, RawTensor) and leaf.storage is not None:
            paths.setdefault(leaf.storage, path)
    return [Bloat(one, used[one], paths.get(one, one.key)) for one in found]


def used_bytes(raw: RawTree) -> dict[Storage, int]:
    """Bytes of each storage that tensors use, at most."""
    by_storage: dict[Storage, list[RawTensor]] = {}
    for tensor in tensors_in(raw.root):
        if tensor.storage is not None:
            by_storage.setdefault(tensor.storage, []).append(tensor)
    return {storage: _used_bytes(tensors, storage) for storage, tensors in by_storage.items()}


def _used_bytes(tensors: list[RawTensor], storage: Storage) -> int:
    """Bytes of a storage that lie in some tensor: an upper bound where tensors overlap."""
    spans = sorted(_span(one) for one in {tensor.place: tensor for tensor in tensors if tensor.place}.values())
    total = begin = end = touched = 0
    for start, stop, count in [*spans, (storage.nbytes, storage.nbytes, 0)]:
        if start >= end:  # what overlaps is counted together: no more than all of it, no more than it reaches over
            total += min(touched, end - begin)
            begin, touched = start, 0
        end = max(end, stop)
        touched += count
    return min(total + min(touched, end - begin), storage.nbytes)


def _span(one: RawTensor) -> tuple[int, int, int]:
    """First byte, byte behind the last one, and bytes in between that are the tensor's."""
    size = ITEMSIZE_BYTES.get(one.spec.dtype, 1)
    stride = one.stride if one.stride is not None else _row_major(one.spec.shape)
    dimensions = list(zip(one.spec.shape, stride, strict=True))
    reach = sum((length - 1) * step for length, step in dimensions) + 1
    touched = math.prod(length for length, step in dimensions if step)
    return one.offset * size, (one.offset + reach) * size, min(touched, reach) * size


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    stride, step = [], 1
    for length in reversed(shape):
        stride.append(step)
        step *= length
    return tuple(reversed(stride))

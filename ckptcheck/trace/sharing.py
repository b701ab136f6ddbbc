"""Which entries of an average lie in the memory of a live weight: what an update does to it then happens to them."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ckptcheck.state.tensor_bytes import is_dense
from ckptcheck.trace.items import Item


def noting_shared(
    leaves: Iterator[tuple[Item, Any]], parameters: Mapping[str, torch.Tensor], found: dict[str, str]
) -> Iterator[tuple[Item, Any]]:
    """The same leaves; `found` is given the name of the parameter for each path that begins where that one does."""
    weights: dict[int, str] | None = None
    for item, leaf in leaves:
        if item.kind == "ema" and isinstance(leaf, torch.Tensor):
            if weights is None:
                weights = {place: name for name, one in parameters.items() if (place := _begin(one))}
            name = weights.get(_begin(leaf))
            if name is not None:
                found[item.name] = name
        yield item, leaf


def _begin(tensor: torch.Tensor) -> int:
    """The address of the first byte; 0 for a tensor that has none."""
    return tensor.data_ptr() if is_dense(tensor) and tensor.numel() else 0

"""Which tensors the operations of a step take: what "the parameter entered the step" means."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ckptcheck.lab.snapshot import tensors_in


class Entering(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, remembers whether an operation took one of the watched tensors, or a view of one."""

    def __init__(self, parameter: torch.Tensor, state: Mapping[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watched = _storages([parameter, *tensors_in(dict(state))])
        self.seen = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self.seen:
            taken = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
            self.seen = not self._watched.isdisjoint(_storages(taken))
        return func(*args, **(kwargs or {}))


def _storages(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {one.untyped_storage()._cdata for one in tensors if not one.is_sparse}

"""Names of live parameters and buffers: fully qualified, wrappers stripped by class, ties with their aliases."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import nn

WRAPPER_HOPS: Final = {
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "_fsdp_wrapped_module",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.CheckpointWrapper": "_checkpoint_wrapped_module",
    "lightning.fabric.wrappers._FabricModule": "_forward_module",
    "lightning_fabric.wrappers._FabricModule": "_forward_module",
    "deepspeed.runtime.engine.DeepSpeedEngine": "module",
}
"""Wrapper class to the name of the child that it wraps. By class and not by string: a user's own child
called `module` keeps its name."""


@dataclass(frozen=True, slots=True)
class LiveNames:
    """The named tensors of one or several modules.

    `parameters` holds the first name of each parameter, in module order, and `aliases` the further names of a
    tied one, by its first name. `buffers` holds every name of a buffer: one that two modules share has two.
    `modules` holds every module but wrappers by its name, and `wrappers` those with the name of what they wrap.
    """

    parameters: Mapping[str, torch.Tensor]
    buffers: Mapping[str, torch.Tensor]
    aliases: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, nn.Module]
    names_by_id: Mapping[int, str]
    wrappers: tuple[tuple[str, nn.Module], ...] = ()

    @property
    def names_of_modules(self) -> dict[int, str]:
        """The name of each module by its identity; a wrapper has that of what it wraps."""
        return {id(module): name for name, module in (*self.wrappers, *self.modules.items())}

    def name_of(self, tensor: torch.Tensor) -> str | None:
        """The parameter's first name, or None when no module holds this very tensor."""
        name = self.names_by_id.get(id(tensor))
        return name if name is not None and self.parameters[name] is tensor else None


def roots_of(model: Any) -> dict[str, nn.Module]:
    """The modules of `Run.model` by prefix: one module under "", a dict under its keys.

    Raises TypeError when something else than a module is found.
    """
    roots = {str(key): module for key, module in model.items()} if isinstance(model, dict) else {"": model}
    for key, module in roots.items():
        if not isinstance(module, nn.Module):
            where = f"model[{key!r}]" if key else "model"
            raise TypeError(f"{where} is a {type(module).__name__}, not a torch.nn.Module")
    return roots


def resolve(model: Any) -> LiveNames:
    """Name every parameter and buffer of a module, or of a dict of modules (their keys become prefixes)."""
    parameters: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}
    aliases: dict[str, list[str]] = {}
    modules: dict[str, nn.Module] = {}
    wrappers: list[tuple[str, nn.Module]] = []
    first: dict[int, str] = {}
    for key, root in roots_of(model).items():
        for name, module in _walk(root, key, ()):
            if _hop_of(module) is None:
                modules[name] = module
            else:
                wrappers.append((name, module))
            for own, parameter in _own(module._parameters, name):
                if id(parameter) in first:
                    aliases.setdefault(first[id(parameter)], []).append(own)
                else:
                    first[id(parameter)] = own
                    parameters[own] = parameter
            buffers.update(_own(module._buffers, name))
    ties = {name: tuple(more) for name, more in aliases.items()}
    return LiveNames(parameters, buffers, ties, modules, first, tuple(wrappers))


def _own(tensors: Mapping[str, torch.Tensor | None], module_name: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors.items():
        if tensor is not None:
            yield (f"{module_name}.{name}" if module_name else name), tensor


def _walk(module: nn.Module, name: str, above: tuple[nn.Module, ...]) -> Iterator[tuple[str, nn.Module]]:
    yield name, module
    hop = _hop_of(module)
    above = (*above, module)
    for child_name, child in module._modules.items():
        if child is None or any(child is one for one in above):  # a child may hold its parent
            continue
        if hop is None:
            yield from _walk(child, f"{name}.{child_name}" if name else child_name, above)
        elif child_name == hop:  # some wrappers hold what they wrap twice, but it has one name
            yield from _walk(child, name, above)


def _hop_of(module: nn.Module) -> str | None:
    """The name of the child that the module is a wrapper of, or None."""
    kind: Any = type(module)
    if kind not in _hops:
        _hops[kind] = _hop_of_class(kind)
    hop = _hops[kind]
    return hop if hop in module._modules else None


_hops: "WeakKeyDictionary[Any, str | None]" = WeakKeyDictionary()
"""By class. It keeps none alive: a script's class would keep all that the script holds from being finalised."""


def _hop_of_class(module_class: Any) -> str | None:
    for kind in module_class.__mro__:
        hop = WRAPPER_HOPS.get(f"{kind.__module__}.{kind.__qualname__}")
        if hop is not None:
            return hop
    return None

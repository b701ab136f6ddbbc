"""Raw trees out of live values, made in memory: what a reader would give of a file that torch.save wrote."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ckptcheck.state.naming import resolve
from ckptcheck.state.raw import Foreign, Named, RawTensor, RawTree, Storage
from ckptcheck.state.tensor import TensorSpec
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState


def raw_tree(root: Any, container: str = "torch-zip", **facts: Any) -> RawTree:
    """A raw tree of one file that holds `root`."""
    return RawTree(Path("made.pt"), container, raw(root), nbytes=0, facts=facts)


def folder(files: Mapping[str, Any]) -> RawTree:
    """A raw tree of a folder: safetensors files keep no order."""
    trees = {
        path: RawTree(Path(path), "safetensors" if path.endswith(".safetensors") else "torch-zip", raw(value), 0)
        for path, value in files.items()
    }
    return RawTree(Path("made"), "folder", {path: tree.root for path, tree in trees.items()}, 0, files=trees)


def raw(value: Any) -> Any:
    """A live value as a raw value."""
    if isinstance(value, torch.Tensor):
        return raw_tensor(value)
    if isinstance(value, torch.nn.Module):
        state = {key: raw(dict(getattr(value, key))) for key in ("_parameters", "_buffers", "_modules")}
        return Foreign(f"{type(value).__module__}.{type(value).__qualname__}", state={"training": True, **state})
    if isinstance(value, Mapping):
        return {key: raw(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(raw(one) for one in value)
    if type(value).__module__ == "numpy" and not isinstance(value, float):
        return raw_tensor(torch.from_numpy(value.copy()), "numpy.ndarray")
    if isinstance(value, torch.dtype):
        return Named(str(value))
    if isinstance(value, torch.device):
        return Foreign("torch.device", (str(value),) if value.index is None else (value.type, value.index))
    return value


def raw_tensor(tensor: torch.Tensor, class_name: str = "torch.Tensor") -> RawTensor:
    """A tensor as a file describes it: its bytes, and the storage that it shares."""
    content = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""

    def read_into(start_bytes: int, buffer: memoryview) -> None:
        buffer[:] = content[start_bytes : start_bytes + len(buffer)]

    is_parameter = isinstance(tensor, torch.nn.Parameter)
    storage = tensor.untyped_storage()
    return RawTensor(
        spec=TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)),
        read_into=read_into,
        storage=Storage("", str(storage.data_ptr()), storage.nbytes()),
        offset=tensor.storage_offset(),
        stride=None if tensor.is_contiguous() else tensor.stride(),
        requires_grad=tensor.requires_grad,
        is_parameter=True if is_parameter else None,
        class_name=class_name,
    )


def live_state(model: Any, *optimizers: Any) -> TrainingState:
    """Live objects as a target that built them tells of them: parameters in the model's order, groups by name."""
    names = resolve(model)

    def entry(tensor: torch.Tensor) -> Entry:
        return Entry(TensorSpec(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)), None)

    return TrainingState(
        source="live",
        step=None,
        parameters={
            name: Parameter(name, entry(one), names.aliases.get(name, ()), one.requires_grad)
            for name, one in names.parameters.items()
        },
        buffers={name: entry(one) for name, one in names.buffers.items()},
        optimizers=tuple(
            Optimizer(
                type(one).__name__,
                tuple(Group(tuple(names.name_of(tensor) for tensor in group["params"])) for group in one.param_groups),
            )
            for one in optimizers
        ),
    )

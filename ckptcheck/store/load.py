"""Load a training state into live objects: all of it, or nothing."""

import copy
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ckptcheck.errors import StoreError
from ckptcheck.store import files, optimizers, surroundings
from ckptcheck.store.decoding import Decoder
from ckptcheck.store.fit import Binding, bind
from ckptcheck.store.layout import MODEL
from ckptcheck.store.live import Live, live, live_of_run
from ckptcheck.store.manifest import Manifest
from ckptcheck.store.read import OpenStore, open_store
from ckptcheck.store.rollback import Undo, one_line
from ckptcheck.store.tensors import TorchSource, read_tensor, same_kind


def load(
    path: str | os.PathLike[str],
    *,
    model: Any,
    optimizer: Any = None,
    scheduler: Any = None,
    scaler: Any = None,
    ema: Any = None,
    data: Any = None,
    extra: Mapping[str, Any] | None = None,
) -> int | None:
    """Load what `save` saved into live objects, built as they were when it was saved; return the step.

    Parameters and buffers are overwritten in place; optimizer state is bound by parameter name and keeps the
    dtypes it was saved in; gradients, `requires_grad`, train and eval modes come back, and last the random
    generators. Before anything is touched, every digest is checked and every name, shape, dtype and param group
    held against the live objects. Needs memory for a copy of what is overwritten while it runs.

    Raises StoreError, with everything live as it was before, when the store is absent or damaged, does not fit,
    or when a load_state_dict raises.
    """
    objects = live(
        model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, ema=ema, data=data, extra=extra
    )
    return _load(Path(path), objects)


def load_run(path: str | os.PathLike[str], run: Any) -> int | None:
    """`load` into the fields of a `ckptcheck.Run`."""
    return _load(Path(path), live_of_run(run))


def _load(folder: Path, objects: Live) -> int | None:
    if not folder.is_dir():
        open_store(folder)  # says what stands there instead
    with files.locked(folder, exclusive=False):
        store = open_store(folder)
        binding = bind(store.manifest, objects, str(folder))
        for tensors in store.tensors.values():
            for stored in tensors.values():
                read_tensor(stored)  # for its digest; read again when it is needed, so that memory stays bounded
        parts = _Decoded(store)
        undo = Undo()
        try:
            _apply(store, binding, objects, parts, undo)
        except BaseException as trouble:
            left = undo.restore()
            if isinstance(trouble, StoreError) or not isinstance(trouble, Exception):
                raise
            now = f"and some could not be put back ({'; '.join(left)})" if left else "everything is as it was before"
            raise StoreError(
                f"{folder}: could not be loaded, {now}: {type(trouble).__name__}: {one_line(trouble)}. "
                "The live objects refuse this state: build them as they were when it was saved"
            ) from trouble
    return store.manifest.step


class _Decoded:
    """What is decoded before anything live is touched: all but parameters, gradients and optimizer state."""

    def __init__(self, store: OpenStore) -> None:
        self.decode = Decoder(TorchSource(store.tensors))
        manifest, at = store.manifest, self.decode.at
        self.sections = {
            section: {label: at(one.state, f"{store.folder}, {section} {label!r}") for label, one in objects.items()}
            for section, objects in manifest.sections.items()
        }
        self.module_states = {
            name: at(node, f"{store.folder}, module {name!r}") for name, node in manifest.module_states.items()
        }
        self.rng = {name: at(node, f"{store.folder}, rng {name}") for name, node in manifest.rng.items()}


def _apply(store: OpenStore, binding: Binding, objects: Live, parts: _Decoded, undo: Undo) -> None:
    generators = surroundings.generators()
    undo.add("the random generators", lambda: surroundings.restore_generators(generators))
    _load_model(store, binding, objects, undo)
    _load_module_states(objects, parts, undo)
    for one in binding.optimizers:
        optimizers.load(one, Decoder(TorchSource(store.tensors)), undo)
    for section, states in parts.sections.items():
        for label, state in states.items():
            live_object = objects.sections[section][label]
            undo.of_object(live_object, f"{section} {label!r}")
            live_object.load_state_dict(state)
    # After the rest: a user's load_state_dict may clear gradients, change modes or draw.
    _load_gradients(store, binding, undo)
    _load_modes(store.manifest, objects)
    surroundings.restore_generators(parts.rng)


def _load_model(store: OpenStore, binding: Binding, objects: Live, undo: Undo) -> None:
    held = store.tensors.get(MODEL, {})
    for module in objects.names.modules.values():
        undo.of_module(module)
    for parameter in binding.parameters.values():
        undo.of_parameter(parameter)
    with torch.no_grad():
        for name, tensor in {**binding.parameters, **binding.buffers}.items():
            undo.of_tensor(tensor)
            tensor.copy_(read_tensor(held[name]))
    for name in binding.unfilled:
        module_name, _, own = name.rpartition(".")
        objects.names.modules[module_name]._buffers[own] = read_tensor(held[name]).to(_device_of(objects))


def _device_of(objects: Live) -> torch.device:
    return next((one.device for one in objects.names.parameters.values()), torch.device("cpu"))


def _load_module_states(objects: Live, parts: _Decoded, undo: Undo) -> None:
    for name, state in parts.module_states.items():
        module = objects.names.modules.get(name)
        if module is None:
            raise StoreError(f"extra state was saved of the module {name!r}, which the live model lacks")
        before = copy.deepcopy(module.get_extra_state())
        undo.add(f"module {name!r}", partial(module.set_extra_state, before))
        module.set_extra_state(state)


def _load_gradients(store: OpenStore, binding: Binding, undo: Undo) -> None:
    decode = Decoder(TorchSource(store.tensors))
    for name, record in store.manifest.parameters.items():
        parameter = binding.parameters[name]
        parameter.requires_grad_(record.requires_grad)
        if record.gradient is None:
            parameter.grad = None
            continue
        gradient = decode.at(record.gradient, f"{store.folder}, gradient of {name}")
        there = parameter.grad
        if there is not None and same_kind(there, gradient):
            # In place: it may be a view into a bucket of gradients.
            with torch.no_grad():
                there.copy_(gradient)
        else:
            parameter.grad = gradient.to(parameter.device)


def _load_modes(manifest: Manifest, objects: Live) -> None:
    for name, module in objects.names.modules.items():
        module.training = manifest.modes.get(name, module.training)

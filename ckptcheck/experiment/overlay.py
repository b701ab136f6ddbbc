"""The worker's side of a bisection: keep the live state whole, and put chosen sections of it back into a loaded run.

Everything goes by name into the objects as they are after the user's own load, however that has bound them: where
an optimizer holds a tensor that the model has replaced, `groups` makes it hold the model's.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ckptcheck.errors import StoreError
from ckptcheck.experiment.overlay_optimizer import OptimizerOverlay
from ckptcheck.experiment.run import Run
from ckptcheck.experiment.sections import OBJECTS, Overlay, Section
from ckptcheck.state.flags import flags
from ckptcheck.store import files, surroundings
from ckptcheck.store.decoding import Decoder
from ckptcheck.store.layout import MODEL
from ckptcheck.store.live import Live, live_of_run
from ckptcheck.store.manifest import Manifest
from ckptcheck.store.read import OpenStore, open_store
from ckptcheck.store.save import save_run
from ckptcheck.store.tensors import TorchSource, read_tensor


def keep(folder: Path, run: Run, step: int) -> list[Section]:
    """Keep the whole live state after `step` in our own store, and tell which sections it has.

    Changes nothing live, unless a state_dict of the user's does. Raises StoreError for what no store can carry.
    """
    save_run(folder, run, step)
    return list(_sections(open_store(folder).manifest))


def _sections(manifest: Manifest) -> Iterator[Section]:
    if any(one.aliases for one in manifest.parameters.values()):
        yield Section("ties")
    yield from (Section(kind) for kind in ("parameters", "requires_grad", "gradients", "modes", "flags"))
    if manifest.buffers:
        yield Section("buffers")
    if manifest.module_states:
        yield Section("module_state")
    for place, record in enumerate(manifest.optimizers):
        grouped = ("groups", "hyperparameters", "state") if record.groups is not None else ()
        yield from (Section(kind, str(place)) for kind in grouped)
        if record.groups is None or record.rest:
            yield Section("rest", str(place))
    for kind, objects in manifest.sections.items():
        yield from (Section(kind, label) for label in objects)
    yield from (Section("generator", name) for name in manifest.rng)


def put_back(folder: Path, overlay: Overlay, run: Run) -> None:
    """Put the chosen sections of a kept state into the live run, and nothing else.

    Raises StoreError where a section finds no place in the live run, and whatever a load_state_dict of the
    user's raises; the run is then half put back and of no more use.
    """
    with files.locked(folder, exclusive=False):
        store = open_store(folder)
        before = surroundings.generators()
        if overlay.has("ties"):
            _tie(store.manifest, live_of_run(run))
        laid = _Laid(store, overlay, live_of_run(run))
        laid.model()
        laid.optimizers()
        laid.objects()
        laid.gradients()
        laid.modes()
        laid.generators(before)


def _tie(manifest: Manifest, objects: Live) -> None:
    """Make one parameter again of what was one: every alias holds what the first name does."""
    for name, record in manifest.parameters.items():
        for alias in record.aliases:
            module, own = _holder(objects, alias)
            module._parameters[own] = objects.names.parameters.get(name, module._parameters[own])


def _holder(objects: Live, name: str) -> tuple[Any, str]:
    module_name, _, own = name.rpartition(".")
    module = objects.names.modules.get(module_name)
    if module is None:
        raise StoreError(f"the live model has no {name!r} to put it back into")
    return module, own


class _Laid:
    """A kept state on its way into live objects."""

    def __init__(self, store: OpenStore, overlay: Overlay, objects: Live) -> None:
        self._manifest, self._where = store.manifest, str(store.folder)
        self._overlay, self._objects = overlay, objects
        self._held = store.tensors.get(MODEL, {})
        self._decode = Decoder(TorchSource(store.tensors))
        self._live = dict(objects.names.parameters)
        for name, aliases in objects.names.aliases.items():
            self._live.update((alias, objects.names.parameters[name]) for alias in aliases)

    def model(self) -> None:
        """Parameters, buffers, extra state of modules and what is trained."""
        overlay = self._overlay
        for name, record in self._manifest.parameters.items():
            for label in (name, *record.aliases):
                if overlay.has("parameters", name=name):
                    _write(self._parameter(label), read_tensor(self._held[name]))
                if overlay.has("requires_grad", name=name):
                    self._parameter(label).requires_grad_(record.requires_grad)
        for name in self._manifest.buffers:
            if overlay.has("buffers", name=name):
                self._buffer(name, read_tensor(self._held[name]))
        for name, node in self._manifest.module_states.items():
            if overlay.has("module_state", name=name) and name in self._objects.names.modules:
                self._objects.names.modules[name].set_extra_state(self._decode.at(node, self._where))

    def _parameter(self, name: str) -> torch.Tensor:
        if name not in self._live:
            raise StoreError(f"the live model has no parameter {name!r} to put it back into")
        return self._live[name]

    def _buffer(self, name: str, values: torch.Tensor) -> None:
        there = self._objects.names.buffers.get(name)
        if there is not None:
            _write(there, values)
            return
        device = next((one.device for one in self._live.values()), torch.device("cpu"))
        module, own = _holder(self._objects, name)
        module._buffers[own] = values.to(device)

    def optimizers(self) -> None:
        """Groups, hyperparameters and state of each optimizer."""
        live = self._objects.optimizers
        for place, record in enumerate(self._manifest.optimizers):
            if not any(self._overlay.touches(kind, str(place)) for kind in ("groups", "rest", "hyperparameters",
                                                                            "state")):  # fmt: skip
                continue
            if place >= len(live):
                raise StoreError(f"the live run has no optimizer {place} to put it back into")
            laid = OptimizerOverlay(record, live[place], self._objects.names, self._live, f"optimizer {place}")
            laid.put(self._overlay, str(place), self._decode)

    def objects(self) -> None:
        """What has a state_dict of its own."""
        for kind in OBJECTS:
            live: Mapping[str, Any] = self._objects.sections.get(kind, {})
            for label, record in self._manifest.sections.get(kind, {}).items():
                if not self._overlay.has(kind, label):
                    continue
                if label not in live:
                    raise StoreError(f"the live run has no {kind} {label!r} to put it back into")
                live[label].load_state_dict(self._decode.at(record.state, self._where))

    def gradients(self) -> None:
        """What was gathered in gradients."""
        for name, record in self._manifest.parameters.items():
            if self._overlay.has("gradients", name=name):
                parameter = self._parameter(name)
                gradient = None if record.gradient is None else self._decode.at(record.gradient, self._where)
                parameter.grad = None if gradient is None else gradient.to(parameter.device)

    def modes(self) -> None:
        """Train and eval modes, and the switches of torch."""
        for name, module in self._objects.names.modules.items():
            if self._overlay.has("modes", name=name):
                module.training = self._manifest.modes.get(name, module.training)
        if self._overlay.has("flags"):
            _set_flags(self._manifest.flags)

    def generators(self, before: Mapping[str, Any]) -> None:
        """The chosen generators; the others are as the user's load left them, whatever was drawn meanwhile."""
        chosen = {
            name: self._decode.at(node, self._where)
            for name, node in self._manifest.rng.items()
            if self._overlay.has("generator", name)
        }
        surroundings.restore_generators({**before, **chosen})


def _write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    with torch.no_grad():
        if (tensor.shape, tensor.dtype) == (values.shape, values.dtype):
            tensor.copy_(values)
        else:
            tensor.data = values.to(tensor.device)


def _set_flags(kept: Mapping[str, Any]) -> None:
    changed = {name: value for name, value in kept.items() if flags().get(name) != value}
    if "num_threads" in changed:
        torch.set_num_threads(changed["num_threads"])
    if "default_dtype" in changed:
        torch.set_default_dtype(getattr(torch, changed["default_dtype"].removeprefix("torch.")))
    if "deterministic_algorithms" in changed:
        torch.use_deterministic_algorithms(changed["deterministic_algorithms"])
    for name in ("benchmark", "deterministic"):
        if f"cudnn_{name}" in changed:
            setattr(torch.backends.cudnn, name, changed[f"cudnn_{name}"])
    for name in ("flash_sdp", "mem_efficient_sdp", "math_sdp"):
        if name in changed:
            getattr(torch.backends.cuda, f"enable_{name}")(changed[name])
    if "float32_matmul_precision" in changed:
        torch.set_float32_matmul_precision(changed["float32_matmul_precision"])

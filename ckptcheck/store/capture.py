"""Live objects as a manifest and the tensors of its payloads. Reads only; draws no random number."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ckptcheck.errors import StoreError
from ckptcheck.state.flags import flags
from ckptcheck.state.tensor_bytes import components, default_algorithm
from ckptcheck.store import optimizers, surroundings
from ckptcheck.store.encoding import Encoder
from ckptcheck.store.layout import GRADIENTS, MODEL, OPTIMIZER, ROLES, SECTIONS
from ckptcheck.store.live import Live
from ckptcheck.store.manifest import Manifest, ObjectRecord, ParameterRecord
from ckptcheck.store.tensors import PayloadPlan, check_plain


@dataclass(frozen=True, slots=True)
class Captured:
    """A training state that can be written: the manifest, still without payloads, and what those will hold."""

    manifest: Manifest
    plans: Mapping[str, PayloadPlan]

    def write_payloads(self, folder: Path) -> Manifest:
        """Write the payloads durably into the folder; the manifest that names them is still to be written."""
        written = {role: plan.write(folder) for role, plan in self.plans.items() if plan.tensors}
        return replace(self.manifest, payloads=written)


def capture(live: Live, step: int | None) -> Captured:
    """Everything that a resume needs; StoreError, naming path and type, for what cannot be carried."""
    tensors = (*live.names.parameters.values(), *live.names.buffers.values())
    algorithm = default_algorithm({tensor.device.type for tensor in tensors})
    plans = {role: PayloadPlan(role, algorithm) for role in ROLES}
    encode = Encoder(plans[SECTIONS])
    parameters = _parameters(live, plans)
    for name, buffer in live.names.buffers.items():
        _add_named(plans[MODEL], name, buffer)
    records = [
        optimizers.capture(one, live.names, Encoder(plans[OPTIMIZER]), place)
        for place, one in enumerate(live.optimizers)
    ]
    sections = {
        section: {
            label: ObjectRecord(type(one).__name__, encode(one.state_dict(), f"{section}/{label}"))
            for label, one in objects.items()
        }
        for section, objects in live.sections.items()
    }
    module_states = {
        name: encode(module.get_extra_state(), f"module {name or '(root)'}, extra state")
        for name, module in live.names.modules.items()
        if has_extra_state(module)
    }
    manifest = Manifest(
        step=step,
        payloads={},
        parameters=parameters,
        buffers=tuple(live.names.buffers),
        optimizers=tuple(records),
        sections=sections,
        module_states=module_states,
        # Last: a user's state_dict may draw, and what a resume needs is where the generators stand afterwards.
        rng={name: encode(state, f"rng/{name}") for name, state in surroundings.generators().items()},
        modes={name: module.training for name, module in live.names.modules.items()},
        flags=flags(),
        versions=surroundings.versions(),
    )
    return Captured(manifest, plans)


def has_extra_state(module: nn.Module) -> bool:
    """Whether the module's class defines state beside parameters and buffers."""
    return type(module).get_extra_state is not nn.Module.get_extra_state


def _parameters(live: Live, plans: Mapping[str, PayloadPlan]) -> dict[str, ParameterRecord]:
    found = {}
    for name, parameter in live.names.parameters.items():
        _add_named(plans[MODEL], name, parameter)
        gradient = parameter.grad
        found[name] = ParameterRecord(
            requires_grad=parameter.requires_grad,
            aliases=live.names.aliases.get(name, ()),
            presence=_presence(gradient),
            gradient=None if gradient is None else plans[GRADIENTS].tensor(gradient.detach(), name),
        )
    return found


def _add_named(plan: PayloadPlan, name: str, tensor: Any) -> None:
    check_plain(tensor, name)
    if tensor.layout != torch.strided:
        raise StoreError(f"{name}: a sparse parameter or buffer cannot be saved: make it dense")
    if plan.add(name, tensor) != name:
        raise StoreError(f"{name}: two tensors of the model have this name: rename a module, or a key of the dict")


def _presence(gradient: torch.Tensor | None) -> str:
    if gradient is None:
        return "none"
    values = components(gradient)[-1]
    return "nonzero" if bool(values.any()) else "zero"

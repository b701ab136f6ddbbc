"""DeepSpeed: ZeRO stages 0 to 3 and universal checkpoints, as one training state by parameter name.

A stage's flat partitions are cut into parameters. Where the model's weights lie beside them, the float32 master
weights stand in the optimizer's state under the key "fp32_param"; under stage 3, whose model file holds placeholders
only, they are the parameters themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ckptcheck.conventions.accelerate import Accelerate
from ckptcheck.conventions.deepspeed_files import Files, is_deepspeed, sort_files
from ckptcheck.conventions.deepspeed_flat import FP32
from ckptcheck.conventions.deepspeed_state import Parted, parted
from ckptcheck.conventions.entries import entries
from ckptcheck.conventions.files import files_of
from ckptcheck.conventions.hf_trainer import HfTrainer
from ckptcheck.conventions.parts import Parts, checkpoint
from ckptcheck.conventions.weights import Weights, weights
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming
from ckptcheck.state.raw import Foreign, Raw, RawTensor, RawTree
from ckptcheck.state.training_state import Group, Optimizer

_PROGRESS: Final = ("global_steps", "skipped_steps", "global_samples")
_USED: Final = frozenset({
    "module", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params", "frozen_param_fragments",
    "buffer_names", "lr_scheduler", "data_sampler", "dp_world_size", "mp_world_size", *_PROGRESS,
})  # fmt: skip
_SCALER: Final = ("loss_scaler", "dynamic_loss_scale", "overflow")
_LAID_OUT: Final = frozenset({
    *_SCALER, "zero_stage", "partition_count", "optimizer_state_dict", "base_optimizer_state", "fp32_flat_groups",
    "single_partition_of_fp32_groups", "group_paddings", "param_alignment_paddings", "param_slice_mappings",
    "param_groups",
})  # fmt: skip
"""Keys of an optimizer file that say how the state is cut, or are told elsewhere."""


class DeepSpeed:
    """A `Convention`."""

    name = "deepspeed"

    def claims(self, raw: RawTree) -> bool:
        """Whether a file of model states is in the folder."""
        return is_deepspeed(files_of(raw))

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Parameters from the model states, optimizer state from all ranks' partitions."""
        files = sort_files(raw.root)
        rest = replace(
            raw, root=files.others, files={path: raw.files[path] for path in files.others if path in raw.files}
        )
        outer = next((one for one in (HfTrainer(), Accelerate()) if one.claims(rest)), None)
        if outer is None:
            return self.own(raw, files, names)
        beside = outer.explain(rest, None)
        files.others.clear()
        return _merged(self.own(raw, files, names), beside)

    def own(self, raw: RawTree, files: Files, names: Sequence[str] | None) -> Checkpoint:
        """What DeepSpeed's own files say."""
        cut = parted(files)
        model = _model(files, cut)
        parts = _parts(files, cut)
        if isinstance(files.first.get("optimizer"), Mapping):
            return checkpoint(raw, self.name, parts, names, model=model)
        naming = Naming(NameSource.SLICES, certain=True, reason=cut.named_by)
        ready = ((_optimizer(cut, model),), (naming,)) if cut.groups or cut.state else ((), ())
        return checkpoint(raw, self.name, parts, names, optimizers=ready, model=model)


def _merged(inner: Checkpoint, outer: Checkpoint) -> Checkpoint:
    """DeepSpeed's model and optimizer in a trainer's folder, which keeps generators, schedule and progress itself."""
    sections = dict(inner.state.sections)
    for name, found in outer.state.sections.items():
        sections[name] = {**sections.get(name, {}), **found}
    state = replace(
        inner.state,
        source=outer.state.source,
        step=inner.state.step if outer.state.step is None else outer.state.step,
        sections=sections,
        rng=outer.state.rng,
    )
    return replace(
        inner,
        convention=outer.convention,
        state=state,
        recorded_step=outer.recorded_step or inner.recorded_step,
        world_size=inner.world_size or outer.world_size,
        unrecognised=(*inner.unrecognised, *outer.unrecognised),
        notes=("model and optimizer are DeepSpeed's", *inner.notes, *outer.notes),
    )


def _model(files: Files, cut: Parted) -> Weights:
    """The weights; where the file holds placeholders, the master weights and the frozen fragments in their place."""
    model: dict[str, Raw] = {}
    for name, value in cut.module.items():
        held = value if _is_whole(value) else cut.masters.get(name, cut.frozen.get(name, value))
        model[name] = held
    model.update({name: one for name, one in cut.masters.items() if name not in model})
    shared = files.first.get("shared_params")
    for alias, owner in shared.items() if isinstance(shared, Mapping) else ():
        if owner in model and not (alias in model and _is_whole(cut.module.get(alias))):
            model.pop(alias, None)  # an alias comes after its owner
            model[alias] = model[owner]
    buffers = set(cut.buffers)
    held = weights(model, ordered=True, optimized=[name for name in model if name not in buffers])
    as_buffers = {name: one.entry for name, one in held.parameters.items() if name in buffers}
    return replace(
        held,
        parameters={name: one for name, one in held.parameters.items() if name not in as_buffers},
        buffers={**held.buffers, **as_buffers},
        shapes={name: shape for name, shape in held.shapes.items() if name not in as_buffers},
    )


def _is_whole(value: Raw) -> bool:
    """Whether a tensor of the model file holds values: stage 3 leaves one of size (0,) in their place."""
    return not (isinstance(value, RawTensor) and value.spec.shape == (0,))


def _optimizer(cut: Parted, model: Weights) -> Optimizer:
    state = {}
    for name, kept in cut.state.items():
        own = model.parameters.get(model.name_of(name))
        is_itself = own is not None and own.entry.ref is kept.get(FP32)
        state[model.name_of(name)] = entries({key: one for key, one in kept.items() if not (is_itself and key == FP32)})
    return Optimizer(
        class_name=None,
        groups=tuple(
            Group(
                tuple(model.name_of(name) for name in names),
                entries({key: one for key, one in hyperparameters.items() if key != "params"}),
            )
            for names, hyperparameters in cut.groups
        ),
        state=state,
    )


def _parts(files: Files, cut: Parted) -> Parts:
    first = files.first
    optimizer = first.get("optimizer")
    schedule, data = first.get("lr_scheduler"), first.get("data_sampler")
    parts = Parts(
        optimizers={"optimizer": optimizer} if isinstance(optimizer, Mapping) else {},
        schedulers={"lr_scheduler": schedule} if schedule is not None else {},
        scalers={"loss_scaler": _scaler(cut.lead)} if any(key in cut.lead for key in _SCALER) else {},
        data={"data_sampler": data} if data is not None else {},
        progress={key: first[key] for key in _PROGRESS if first.get(key) is not None},
        extra={str(key): value for key, value in first.items() if key not in _USED and value is not None},
        world_size=_world_size(files),
        notes=list(cut.notes),
    )
    parts.extra.update({f"optimizer.{key}": value for key, value in cut.lead.items() if key not in _LAID_OUT})
    parts.extra.update(files.others)
    parts.unrecognised.extend(files.others)
    if len(files.tags) > 1:
        parts.notes.append(f"of {len(files.tags)} checkpoints in the folder, {files.tag} is the one that is read")
    return parts


def _scaler(lead: Mapping[Any, Raw]) -> Raw:
    """The loss scaler's own attributes, with what stands beside it."""
    scaler = lead.get("loss_scaler")
    held = scaler.state if isinstance(scaler, Foreign) else scaler
    beside = {key: lead[key] for key in _SCALER[1:] if key in lead}
    return {**held, **beside} if isinstance(held, Mapping) else {"loss_scaler": held, **beside}


def _world_size(files: Files) -> int | None:
    sizes = [files.first.get(key) for key in ("dp_world_size", "mp_world_size")]
    counts = [one for one in sizes if type(one) is int and one > 0]
    return counts[0] * counts[1] if len(counts) == len(sizes) else None

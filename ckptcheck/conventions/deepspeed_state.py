"""From DeepSpeed's files to state by parameter name: all ranks' partitions of a group, or universal parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckptcheck.conventions.deepspeed_files import Files
from ckptcheck.conventions.deepspeed_flat import (
    FP32,
    Cut,
    Partition,
    Shapes,
    cut_each,
    cut_group,
    fragments_of,
    joined,
    shapes_of,
    subgroups,
)
from ckptcheck.state.raw import Raw, RawTensor

_UNIVERSAL_FP32 = "fp32"


@dataclass(slots=True)
class Parted:
    """What the ranks hold, by parameter name as the files write it.

    Attributes:
        module: the model file's tensors.
        buffers: names of those that are no parameters.
        masters: float32 master weights.
        frozen: frozen parameters of stage 3.
        state: optimizer state by parameter and key, master weights under `FP32`.
        groups: each group's members and hyperparameters.
        lead: the first rank's optimizer file, without its wrapper.
        named_by: what tells which elements belong to which parameter, in one sentence.
        notes: what could not be cut, one sentence each.
    """

    module: dict[str, Raw] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    masters: dict[str, Raw] = field(default_factory=dict)
    frozen: dict[str, Raw] = field(default_factory=dict)
    state: dict[str, dict[str, Raw]] = field(default_factory=dict)
    groups: list[tuple[tuple[str, ...], Mapping[Any, Raw]]] = field(default_factory=list)
    lead: Mapping[Any, Raw] = field(default_factory=dict)
    named_by: str = ""
    notes: list[str] = field(default_factory=list)


def parted(files: Files) -> Parted:
    """Everything by parameter name. Tensor-parallel ranks are not joined: each keeps its own names."""
    ranks = sorted({mp for mp, _ in files.model})
    whole = Parted()
    for mp in ranks:
        _merge(whole, _of_rank(files, mp), f"mp_rank_{mp:02d}/" if len(ranks) > 1 else "")
    if len(ranks) > 1:
        whole.notes.append(f"{len(ranks)} tensor-parallel ranks stand beside each other: their pieces are not joined")
    return whole


def _merge(whole: Parted, one: Parted, prefix: str) -> None:
    for name in ("module", "masters", "frozen", "state"):
        getattr(whole, name).update({f"{prefix}{key}": value for key, value in getattr(one, name).items()})
    whole.buffers = (*whole.buffers, *(f"{prefix}{name}" for name in one.buffers))
    whole.groups.extend((tuple(f"{prefix}{name}" for name in names), values) for names, values in one.groups)
    whole.lead = whole.lead or one.lead
    whole.named_by = whole.named_by or one.named_by
    whole.notes.extend(one.notes)


def _of_rank(files: Files, mp: int) -> Parted:
    models = [value for (rank, _), value in sorted(files.model.items()) if rank == mp]
    first = models[0]
    module, names = first.get("module"), first.get("buffer_names")
    found = Parted(
        module={str(name): value for name, value in module.items()} if isinstance(module, Mapping) else {},
        buffers=tuple(map(str, names)) if isinstance(names, list | tuple) else (),
    )
    found.frozen = _frozen(models, found.notes)
    shapes = first.get("param_shapes")
    groups = [shapes_of(one) for one in shapes] if isinstance(shapes, list | tuple) else []
    if files.universal:
        _universal(files, groups, found)
    else:
        _flat(files, mp, groups, found)
    found.masters = {name: kept[FP32] for name, kept in found.state.items() if FP32 in kept}
    return found


def _frozen(models: Sequence[Mapping[Any, Raw]], notes: list[str]) -> dict[str, Raw]:
    """Frozen parameters of stage 3, each split evenly over the ranks."""
    shapes = shapes_of(models[0].get("frozen_param_shapes"))
    found: dict[str, Raw] = {}
    for name, shape in shapes.items():
        pieces = [_part(one.get("frozen_param_fragments"), name) for one in models]
        if not all(isinstance(piece, RawTensor) for piece in pieces):
            continue
        try:
            found[name] = joined(pieces, shape, name)
        except ValueError as trouble:
            notes.append(f"the frozen parameter {name} cannot be joined: {trouble}")
    return found


def _part(value: Raw, key: Any) -> Raw:
    return value.get(key) if isinstance(value, Mapping) else None


def _universal(files: Files, groups: Sequence[Shapes], found: Parted) -> None:
    found.named_by = "the folders of a universal checkpoint are named by parameter"
    found.lead = files.universal_state or {}
    for name, kept in files.universal.items():
        trained = any(key not in (_UNIVERSAL_FP32, "step") for key in kept)
        values = {FP32 if key == _UNIVERSAL_FP32 else key: _unpacked(value) for key, value in kept.items()}
        if trained or any(name in group for group in groups):
            found.state[name] = values
        elif FP32 in values:
            found.frozen.setdefault(name, values[FP32])
    found.groups = _groups(found.lead.get("param_groups"), groups)


def _unpacked(value: Raw) -> Raw:
    return value["param"] if isinstance(value, Mapping) and "param" in value else value


def _groups(raw: Raw, shapes: Sequence[Shapes]) -> list[tuple[tuple[str, ...], Mapping[Any, Raw]]]:
    values = [one if isinstance(one, Mapping) else {} for one in raw] if isinstance(raw, list | tuple) else []
    if len(values) != len(shapes):
        values = [{} for _ in shapes]
    return [(tuple(names), one) for names, one in zip(shapes, values, strict=True)]


def _flat(files: Files, mp: int, groups: Sequence[Shapes], found: Parted) -> None:
    ranks = {dp: _inner(value) for (rank, dp), value in sorted(files.optim.items()) if rank == mp}
    if not ranks:
        return
    found.lead = ranks[min(ranks)]
    expected = _partition_count(found.lead) or len(ranks)
    base = _base(found.lead)
    found.groups = _groups(base.get("param_groups"), groups)
    if sorted(ranks) != list(range(expected)):
        found.notes.append(
            f"optimizer files of {len(ranks)} of {expected} ranks are there: their flat partitions cannot be joined"
        )
        return
    lanes = [ranks[rank] for rank in range(expected)]
    for cut in _stage_three(lanes, groups, found) if "fp32_flat_groups" in found.lead else _early(lanes, groups, found):
        found.state.update(cut.state)
        found.notes.extend(f"the state of {name} cannot be joined: {said}" for name, said in cut.failed.items())


def _inner(value: Mapping[Any, Raw]) -> Mapping[Any, Raw]:
    inner = value.get("optimizer_state_dict")
    return inner if isinstance(inner, Mapping) else value


def _base(lane: Mapping[Any, Raw]) -> Mapping[Any, Raw]:
    """The wrapped optimizer's own state_dict; old elastic files hold a list of states in its place."""
    base = lane.get("base_optimizer_state", lane.get("optimizer_state_dict"))
    if isinstance(base, list | tuple):
        return {"state": dict(enumerate(base))}
    return base if isinstance(base, Mapping) else {}


def _partition_count(lane: Mapping[Any, Raw]) -> int | None:
    count = lane.get("partition_count")
    if isinstance(count, list | tuple):
        count = max((one for one in count if type(one) is int), default=None)
    return count if type(count) is int and count > 0 else None


def _early(lanes: Sequence[Mapping[Any, Raw]], groups: Sequence[Shapes], found: Parted) -> list[Cut]:
    """Stages 1 and 2."""
    mapped = all(isinstance(lane.get("param_slice_mappings"), list | tuple) for lane in lanes)
    found.named_by = (
        "param_slice_mappings say where each parameter lies" if mapped else "param_shapes are laid end to end"
    )
    return [cut_group([_partition(lane, place) for lane in lanes], group) for place, group in enumerate(groups)]


def _partition(lane: Mapping[Any, Raw], group: int) -> Partition:
    fp32 = _at(lane.get("single_partition_of_fp32_groups"), group)
    padding = _at(lane.get("group_paddings"), group)
    state = _part(_base(lane).get("state"), group)
    return Partition(
        fp32 if isinstance(fp32, RawTensor) else None,
        state if isinstance(state, Mapping) else {},
        fragments_of(_at(lane.get("param_slice_mappings"), group)),
        padding if type(padding) is int and padding > 0 else 0,
    )


def _at(value: Raw, place: int) -> Raw:
    return value[place] if isinstance(value, list | tuple) and place < len(value) else None


def _stage_three(lanes: Sequence[Mapping[Any, Raw]], groups: Sequence[Shapes], found: Parted) -> list[Cut]:
    found.named_by = "param_shapes say where each parameter's part lies on every rank"
    merged = {name: shape for group in groups for name, shape in group.items()}
    lengths = [_length(one) for one in _flats(lanes[0])]
    parts = subgroups(merged, lengths, len(lanes))
    if parts is None:
        said = f"the flat groups of {lengths} elements on each rank do not hold the shapes that param_shapes list"
        return [Cut(failed=dict.fromkeys(merged, said))]
    return [cut_each([_sub_partition(lane, place) for lane in lanes], shapes) for place, shapes in enumerate(parts)]


def _flats(lane: Mapping[Any, Raw]) -> Sequence[Raw]:
    flats = lane.get("fp32_flat_groups")
    return flats if isinstance(flats, list | tuple) else ()


def _sub_partition(lane: Mapping[Any, Raw], place: int) -> Partition:
    fp32 = _at(_flats(lane), place)
    state = _part(_base(lane).get("state"), place)
    return Partition(fp32 if isinstance(fp32, RawTensor) else None, state if isinstance(state, Mapping) else {})


def _length(value: Raw) -> int:
    return value.spec.numel if isinstance(value, RawTensor) else 0

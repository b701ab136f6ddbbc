"""DeepSpeed's flat buffers cut into parameters: ZeRO keeps each group as one 1-D tensor, a part of it on each rank.

Stages 1 and 2 cut a group's concatenated parameters evenly, wherever that falls; stage 3 cuts each parameter by
itself, and a rank keeps its parts one after the other. Padding stands at the end of what is cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeGuard

from ckptcheck.state.pieces import Run, join_runs
from ckptcheck.state.raw import Foreign, Raw, RawTensor, Storage
from ckptcheck.state.tensor import TensorSpec

FP32: Final = "fp32_param"
"""The state key of the float32 master weights, which DeepSpeed keeps beside the optimizer's own state."""

MAX_SIZE: Final = 1 << 62
"""A larger number is no size."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Partition:
    """What one rank keeps of one group.

    Attributes:
        fp32: its part of the flat master weights; None where it has none.
        state: the optimizer's state of the group by key; flat tensors are as long as the part with its padding.
        fragments: (start in the part, number of elements) of each parameter that has some here, in elements; None
            where the file does not say.
        padding: elements at the end of the group that the last rank's `fp32` leaves out and flat state has; more than
            a part is long where the group is small.
    """

    fp32: RawTensor | None
    state: Mapping[str, Raw]
    fragments: Mapping[str, tuple[int, int]] | None = None
    padding: int = 0


@dataclass(slots=True)
class Cut:
    """Parameters cut out of flat buffers: state by parameter name and key, and what could not be cut, in words."""

    state: dict[str, dict[str, Raw]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


Spans = Mapping[str, Sequence[tuple[int, int, int]]]
"""For each parameter its spans: rank, start in that rank's part, number of elements; in the parameter's order."""


def cut_group(parts: Sequence[Partition], shapes: Shapes) -> Cut:
    """Stages 1 and 2: `parts` are all ranks' parts of one group, `shapes` its parameters in order."""
    mapped = all(part.fragments is not None for part in parts)
    return _cut(parts, shapes, _mapped_spans(parts, shapes) if mapped else _even_spans(parts, shapes))


def cut_each(parts: Sequence[Partition], shapes: Shapes) -> Cut:
    """Stage 3: every parameter is split evenly over the ranks, its last parts padded."""
    spans: dict[str, list[tuple[int, int, int]]] = {}
    start = 0
    for name, shape in shapes.items():
        numel = TensorSpec("uint8", shape).numel
        length = -(-numel // len(parts))
        spans[name] = [(rank, start, max(0, min(length, numel - rank * length))) for rank in range(len(parts))]
        start += length
    if any(part.fp32 is not None and part.fp32.spec.numel != start for part in parts):
        held = [part.fp32.spec.numel for part in parts if part.fp32]
        said = f"ranks hold {held} elements, the parameters' shapes make {start}"
        return Cut(failed=dict.fromkeys(shapes, said))
    return _cut(parts, shapes, spans)


def joined(pieces: Sequence[RawTensor], shape: tuple[int, ...], name: str) -> RawTensor:
    """A tensor that was split evenly over the ranks; ValueError where the pieces do not make it."""
    spec = TensorSpec(pieces[0].spec.dtype, shape)
    spans, start = [], 0
    for rank, piece in enumerate(pieces):
        length = min(piece.spec.numel, spec.numel - start)
        spans.append((rank, 0, length))
        start += length
    return _joined(spec, spans, pieces, name)


def _mapped_spans(parts: Sequence[Partition], shapes: Shapes) -> Spans:
    return {
        name: [
            (rank, *part.fragments[name])
            for rank, part in enumerate(parts)
            if part.fragments and name in part.fragments
        ]
        for name in shapes
    }


def _length(parts: Sequence[Partition]) -> int:
    """Elements of each rank's part, padding included: all parts are as long as the first."""
    first = parts[0] if parts else None
    return first.fp32.spec.numel + first.padding if first and first.fp32 else 0


def _even_spans(parts: Sequence[Partition], shapes: Shapes) -> Spans:
    """Where the group's parameters lie when they are laid end to end and cut at the ends of the parts."""
    most = _length(parts)
    spans: dict[str, list[tuple[int, int, int]]] = {}
    rank = within = 0
    for name, shape in shapes.items():
        left = TensorSpec("uint8", shape).numel
        spans[name] = []
        while left and rank < len(parts):
            length = min(left, most - within)
            if length:
                spans[name].append((rank, within, length))
            left, within = left - length, within + length
            if within >= most:
                rank, within = rank + 1, 0
    return spans


def _cut(parts: Sequence[Partition], shapes: Shapes, spans: Spans) -> Cut:
    found = Cut()
    flat, torn = _flat(parts)
    found.failed.update({f"{name}.{key}": "not all ranks have it" for name in shapes for key in torn})
    for name, shape in shapes.items():
        kept: dict[str, Raw] = {}
        try:
            for key, tensors in flat.items():
                kept[key] = _joined(TensorSpec(tensors[0].spec.dtype, shape), spans[name], tensors, f"{name}.{key}")
        except ValueError as trouble:
            found.failed[name] = str(trouble)
            continue
        holder = next((rank for rank, _, length in spans[name] if length), 0)
        kept.update({key: value for key, value in parts[holder].state.items() if key not in flat and key not in torn})
        found.state[name] = kept
    return found


def _flat(parts: Sequence[Partition]) -> tuple[dict[str, list[RawTensor]], set[str]]:
    """What is flat on every rank, by state key; and the keys of what is flat, or larger than a number, on some only."""
    flat: dict[str, list[RawTensor]] = {}
    torn: set[str] = set()
    masters = [part.fp32 for part in parts if part.fp32 is not None]
    if len(masters) == len(parts):
        flat[FP32] = masters
    most = _length(parts)
    for key in dict.fromkeys(key for part in parts for key in part.state):
        tensors = [one for part in parts if _is_flat(one := part.state.get(key), part, most)]
        if len(tensors) == len(parts):
            flat[key] = tensors
        elif any(isinstance(one := part.state.get(key), RawTensor) and one.spec.numel > 1 for part in parts):
            torn.add(key)
    return flat, torn


def _is_flat(value: Raw, part: Partition, most: int) -> TypeGuard[RawTensor]:
    if not isinstance(value, RawTensor) or len(value.spec.shape) != 1 or part.fp32 is None:
        return False
    return value.spec.numel in (part.fp32.spec.numel, most)


def _joined(spec: TensorSpec, spans: Sequence[tuple[int, int, int]], flat: Sequence[RawTensor], key: str) -> RawTensor:
    runs, start = [], 0
    for rank, begin, length in spans:
        if begin < 0 or length < 0 or begin + length > flat[rank].spec.numel:
            raise ValueError(f"rank {rank} holds {flat[rank].spec.numel} elements, not {begin + length}")
        if flat[rank].spec.dtype != spec.dtype:
            raise ValueError(f"ranks hold {flat[rank].spec.dtype} and {spec.dtype}")
        runs.append(Run(start, length, flat[rank].read_into, begin))
        start += length
    return RawTensor(spec, join_runs(spec, runs), Storage("", key, spec.nbytes))


def shapes_of(value: Raw) -> dict[str, tuple[int, ...]]:
    """Shapes by parameter name, as `param_shapes` holds them for a group; what is no shape is left out."""
    if not isinstance(value, Mapping):
        return {}
    return {str(name): size for name, one in value.items() if (size := _size(one)) is not None}


def fragments_of(value: Raw) -> dict[str, tuple[int, int]] | None:
    """A group's entry of `param_slice_mappings`: (start, number of elements) by parameter name; None without."""
    if not isinstance(value, Mapping):
        return None
    found = {}
    for name, one in value.items():
        parts = one.state if isinstance(one, Foreign) and isinstance(one.state, Mapping) else {}
        start, numel = parts.get("start"), parts.get("numel")
        if type(start) is not int or type(numel) is not int:
            return None
        found[str(name)] = (start, numel)
    return found


def subgroups(shapes: Shapes, lengths: Sequence[int], ranks: int) -> list[dict[str, tuple[int, ...]]] | None:
    """Stage 3: the parameters of each flat buffer, which are `lengths` long on each rank; None where none fits."""
    found: list[dict[str, tuple[int, ...]]] = []
    waiting = iter(shapes.items())
    for length in lengths:
        group: dict[str, tuple[int, ...]] = {}
        left = length
        while left > 0:
            name, shape = next(waiting, ("", None))
            if shape is None:
                return None
            group[name] = shape
            left -= -(-TensorSpec("uint8", shape).numel // ranks)
        if left:
            return None
        found.append(group)
    return found if next(waiting, None) is None else None


def _size(value: Raw) -> tuple[int, ...] | None:
    if isinstance(value, list | tuple) and all(type(one) is int and 0 <= one < MAX_SIZE for one in value):
        return tuple(value)
    return None

"""One rank's pieces of tensors in its own file: DTensor (FSDP2, tensor parallel) and ShardedTensor (FSDP1).

Each becomes a `RawTensor` of the piece that lies in the file, with its place in the whole. What was saved: the logical
shape, the local tensor, and the mesh and placements, or the offsets, that say where it belongs. Attributes of the
wrappers change between releases of torch: what cannot be understood stays the `Foreign` object that it is.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ckptcheck.readers.pickle.stub_fields import attributes, sizes
from ckptcheck.state.raw import Foreign, Raw, RawTensor, RawTree, Shard, tensors_in

DTENSOR: Final = "DTensor"
SHARDED_TENSOR: Final = "ShardedTensor"
_SHARD: Final = "Shard"
_REPLICATE: Final = "Replicate"
"""Last parts of the names of classes, which have moved between modules of torch."""
_WHOLE: Final = -1
"""The axis of a placement that cuts nothing."""


def with_pieces(tree: RawTree) -> RawTree:
    """The file with its pieces gathered; as it is where its globals name no tensor of pieces."""
    if any(_last(one.name) in (DTENSOR, SHARDED_TENSOR) for one in tree.globals):
        return replace(tree, root=gather(tree.root))
    return tree


def gather(root: Raw) -> Raw:
    """The raw value with every DTensor and ShardedTensor replaced by its local piece, in place where it can be."""
    piece = _piece(root)
    if piece is not None:
        return piece
    if isinstance(root, dict):
        for key, value in root.items():
            if (new := gather(value)) is not value:
                root[key] = new
    elif isinstance(root, list):
        root[:] = map(gather, root)
    elif isinstance(root, tuple):
        new_items = tuple(map(gather, root))
        return root if all(one is two for one, two in zip(root, new_items, strict=True)) else new_items
    elif isinstance(root, Foreign):
        root.arguments = gather(root.arguments)
        root.state = gather(root.state)
        root.items = gather(root.items)
    return root


def _piece(value: Raw) -> RawTensor | None:
    if not isinstance(value, Foreign):
        return None
    kind = _last(value.class_name)
    if kind == DTENSOR:
        return _of_dtensor(value)
    return _of_sharded_tensor(value) if kind == SHARDED_TENSOR else None


def _of_dtensor(value: Foreign) -> RawTensor | None:
    parts = attributes(value)
    local, layout = parts.get("_local_tensor"), attributes(parts.get("_spec"))
    mesh, placements = attributes(layout.get("mesh")), layout.get("placements")
    whole = value.spec.shape if value.spec else _whole_shape(layout.get("tensor_meta"))
    lengths, coordinate = _mesh_shape(mesh), sizes(mesh.get("_coordinate_on_dim"))
    if not isinstance(local, RawTensor) or not isinstance(placements, list | tuple) or whole is None:
        return None
    if lengths is None or coordinate is None or not len(placements) == len(lengths) == len(coordinate):
        return None
    axes = [_axis(one, len(whole)) for one in placements]
    if (
        None in axes
        or not _is_mesh_order(layout.get("shard_order"))
        or any(place >= length for place, length in zip(coordinate, lengths, strict=True))
    ):
        return None
    offsets, shape = _place(
        whole, [(axis or 0, n, at) for axis, n, at in zip(axes, lengths, coordinate, strict=True) if axis != _WHOLE]
    )
    rank = mesh.get("_rank")
    return _as_piece(local, whole, offsets, shape, rank if type(rank) is int else None)


def _axis(placement: Raw, dimensions: int) -> int | None:
    """The dimension that a placement cuts, `_WHOLE` for a replica, None for what is not understood."""
    if not isinstance(placement, Foreign):
        return None
    kind = _last(placement.class_name)
    if kind == _REPLICATE:
        return _WHOLE
    axis = attributes(placement).get("dim", placement.arguments[0] if placement.arguments else None)
    if kind != _SHARD or type(axis) is not int or not 0 <= axis < dimensions:
        return None
    return axis


def _is_mesh_order(order: Raw) -> bool:
    """Whether a dimension that several mesh dimensions cut is cut in their own order, as all releases do but for a few.

    `order` lists (dimension, mesh dimensions), named tuples.
    """
    entries = [one.arguments for one in order if isinstance(one, Foreign)] if isinstance(order, list | tuple) else []
    cuts = [sizes(one[1]) for one in entries if len(one) == 2]
    return all(one is not None and list(one) == sorted(one) for one in cuts)


def _place(whole: tuple[int, ...], cuts: list[tuple[int, int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offsets and shape of the piece left by each cut in turn: (dimension, number of parts, which part).

    As torch.chunk cuts: all parts are as long as the first, the last ones shorter or empty.
    """
    offsets, shape = [0] * len(whole), list(whole)
    for axis, count, place in cuts:
        length = -(-shape[axis] // count)
        start = min(length * place, shape[axis])
        offsets[axis] += start
        shape[axis] = min(length, shape[axis] - start)
    return tuple(offsets), tuple(shape)


def _mesh_shape(mesh: dict[str, Raw]) -> tuple[int, ...] | None:
    """Ranks along each dimension of a DeviceMesh: of its layout, else of the tensor of ranks of older releases."""
    axes = attributes(mesh.get("_layout")).get("axes")
    if isinstance(axes, list | tuple):
        lengths = [sizes(attributes(one).get("shape")) for one in axes]
        if all(one is not None and len(one) == 1 for one in lengths):
            return tuple(one[0] for one in lengths if one)
        return None
    ranks = mesh.get("mesh", mesh.get("_mesh"))
    if isinstance(ranks, RawTensor):
        return ranks.spec.shape
    flat = sizes(mesh.get("_flatten_rank_map", mesh.get("_flatten_mesh_list")))
    coordinate = sizes(mesh.get("_coordinate_on_dim"))
    return (len(flat),) if flat and coordinate and len(coordinate) == 1 else None


def _whole_shape(meta: Raw) -> tuple[int, ...] | None:
    """The shape in a `TensorMeta`, a named tuple whose first value it is."""
    return sizes(meta.arguments[0]) if isinstance(meta, Foreign) and meta.arguments else None


def _of_sharded_tensor(value: Foreign) -> RawTensor | None:
    parts = value.state
    if not isinstance(parts, tuple) or len(parts) < 3 or not isinstance(parts[0], list):
        return None
    whole, rank = sizes(attributes(parts[1]).get("size")), attributes(parts[2]).get("global_rank")
    shards = [attributes(one) for one in parts[0]]
    if whole is None or len(shards) != 1:
        return None
    place = attributes(shards[0].get("metadata"))
    local, offsets, shape = shards[0].get("tensor"), sizes(place.get("shard_offsets")), sizes(place.get("shard_sizes"))
    if not isinstance(local, RawTensor) or offsets is None or shape is None:
        return None
    return _as_piece(local, whole, offsets, shape, rank if type(rank) is int else None)


def _as_piece(
    local: RawTensor, whole: tuple[int, ...], offsets: tuple[int, ...], shape: tuple[int, ...], rank: int | None
) -> RawTensor | None:
    """The local tensor with its place; None where it is not as large as its place is. A replica is the whole."""
    fits = len(whole) == len(offsets) == len(shape) and all(
        begin + length <= most for begin, length, most in zip(offsets, shape, whole, strict=True)
    )
    if local.spec.shape != shape or not fits:
        return None
    return replace(local, shard=Shard(whole, offsets, rank) if shape != whole else None)


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def pieces_in(root: Raw) -> Iterator[RawTensor]:
    """Every piece of a larger tensor in a raw value."""
    return (one for one in tensors_in(root) if one.shard is not None)

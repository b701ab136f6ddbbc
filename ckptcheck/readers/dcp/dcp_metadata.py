"""The `.metadata` file of a distributed checkpoint (torch.distributed.checkpoint): which item lies where.

A pickle of `Metadata`: `state_dict_metadata` maps a flat key to the shape and chunks of a tensor, or to a mark that
the item is any object; `storage_data` maps (key, offsets of the chunk) to a file, an offset and a length;
`planner_data` maps the key to the path of the item in the nested state_dict.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.dcp import dcp_classes as classes
from ckptcheck.readers.dcp.nesting import ItemPath
from ckptcheck.readers.pickle.stub_fields import MAX_SIZE, attributes, sizes
from ckptcheck.readers.pickle.torch_tensors import dtype_of
from ckptcheck.readers.source import quoted
from ckptcheck.state.raw import MAX_RAW_DEPTH, Foreign, Raw
from ckptcheck.state.tensor import ITEMSIZE_BYTES, TensorSpec

_RANK: Final = re.compile(r"__(\d{1,8})_\d+\.distcp")
MAX_SHOWN_BITS: Final = 200
"""Of a number in a message."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where an item's bytes lie: `file` is relative to the checkpoint's folder."""

    file: str
    begin: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A box of a tensor, and where it is stored."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    extent: Extent


@dataclass(frozen=True, slots=True)
class TensorItem:
    """A tensor. `path` is its place in the nested state_dict: strings are keys, ints are positions in a list."""

    key: str
    path: ItemPath
    spec: TensorSpec
    chunks: tuple[Chunk, ...]
    requires_grad: bool | None


@dataclass(frozen=True, slots=True)
class ValueItem:
    """Any other object, pickled on its own."""

    key: str
    path: ItemPath
    extent: Extent


@dataclass(frozen=True, slots=True)
class DcpMetadata:
    """The whole of a `.metadata` file, in its own order."""

    items: tuple[TensorItem | ValueItem, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def unordered(self) -> tuple[str | int, ...]:
        """First parts of paths below which the order of tensors is lost.

        Ranks that hold the same tensors save some of them each, and the metadata lists one rank's after another's: the
        order is whole only where the first rank saved a chunk of each.
        """
        tensors = [item for item in self.items if isinstance(item, TensorItem) and item.chunks]
        savers = [(item.path[0], {_saver(chunk.extent.file) for chunk in item.chunks}) for item in tensors]
        first = min((min(ranks) for _, ranks in savers), default="")
        return tuple(dict.fromkeys(top for top, ranks in savers if first not in ranks))

    def extents(self) -> Iterator[tuple[str, Extent, TensorSpec | None]]:
        """Each stored run of bytes with a name for it, and what tensor it holds; None for a value."""
        for item in self.items:
            if isinstance(item, ValueItem):
                yield item.key, item.extent, None
            else:
                for chunk in item.chunks:
                    name = f"{item.key}{list(chunk.offsets) if len(item.chunks) > 1 else ''}"
                    yield name, chunk.extent, TensorSpec(item.spec.dtype, chunk.shape)


def parse_metadata(root: Raw, where: str) -> DcpMetadata:
    """From what the pickle holds; `where` is the file's path, for messages.

    Raises DamagedCheckpointError where parts do not fit each other, CheckpointError where it is of another kind.
    """
    parts = attributes(root)
    described, stored = parts.get("state_dict_metadata"), parts.get("storage_data")
    if not isinstance(described, dict) or not isinstance(stored, dict):
        said = f"{where}: is no metadata of a distributed checkpoint: state_dict_metadata is not in it"
        raise DamagedCheckpointError(said) if classes.is_of(root, classes.WHOLE) else CheckpointError(said)
    planned = parts.get("planner_data")
    return _Parse(where, _extents(stored, where), planned if isinstance(planned, dict) else {}).all(described, parts)


def _saver(file: str) -> str:
    """The rank that wrote a file, in a text that sorts as ranks do; the file's own name where it names none."""
    match = _RANK.fullmatch(file)
    return f"{int(match[1]):08d}" if match else file


def shown(value: Raw) -> str:
    """A short text for a value of any size and depth."""
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() < MAX_SHOWN_BITS):
        return repr(value)
    return f"a {type(value).__name__}"


def _listed(value: Raw) -> str:
    return ", ".join(map(shown, value[:8])) if isinstance(value, list | tuple) else shown(value)


def _extents(stored: dict[Raw, Raw], where: str) -> dict[tuple[str, tuple[int, ...] | None], Extent]:
    found = {}
    for index, info in stored.items():
        for one, fits in ((index, classes.is_of(index, classes.INDEX)), (info, classes.is_extent(info))):
            if not fits:
                raise DamagedCheckpointError(f"{where}: storage_data holds {_unknown(one)}")
        named, kept = attributes(index), attributes(info)
        key, offset = named.get("fqn"), named.get("offset")
        file, begin, nbytes = kept.get("relative_path"), kept.get("offset"), kept.get("length")
        place = sizes(offset) if offset is not None else None
        if not isinstance(key, str) or not isinstance(file, str) or (offset is not None and place is None):
            raise DamagedCheckpointError(f"{where}: storage_data holds an entry without name or file")
        if not _is_size(begin) or not _is_size(nbytes):
            raise DamagedCheckpointError(
                f"{where}: {shown(key)} lies at {shown(begin)}, {shown(nbytes)} bytes long: no extent"
            )
        if kept.get("transform_descriptors"):
            raise CheckpointError(
                f"{where}: {shown(key)} is stored through {_listed(kept['transform_descriptors'])}: only plain storage "
                f"is read"
            )
        found[key, place] = Extent(file, begin, nbytes)
    return found


def _unknown(value: Raw) -> str:
    """An object of a class that torch does not know in this place."""
    return f"an object of {classes.named(value)}, which torch's reader does not know there"


def _is_size(value: Raw) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < MAX_SIZE


@dataclass(frozen=True, slots=True)
class _Parse:
    where: str
    extents: dict[tuple[str, tuple[int, ...] | None], Extent]
    planned: dict[Raw, Raw]

    def all(self, described: dict[Raw, Raw], parts: dict[str, Raw]) -> DcpMetadata:
        items: list[TensorItem | ValueItem] = []
        for key, value in described.items():
            if not isinstance(key, str):
                raise self.damage(f"an item is named {shown(key)}")
            is_value = classes.is_of(value, classes.VALUE)
            if not is_value and not classes.is_of(value, classes.TENSOR):
                raise self.damage(f"{shown(key)} is described by {_unknown(value)}")
            items.append(self.value(key) if is_value else self.tensor(key, value))
        facts: dict[str, Any] = {}
        if isinstance(parts.get("version"), str):
            facts["version"] = parts["version"]
        save_id = attributes(parts.get("storage_meta")).get("save_id")
        if isinstance(save_id, str):
            facts["save_id"] = save_id
        return DcpMetadata(tuple(items), facts)

    def damage(self, said: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(f"{self.where}: {said}: it does not describe a checkpoint")

    def value(self, key: str) -> ValueItem:
        extent = self.extents.get((key, None))
        if extent is None:
            raise self.damage(f"storage_data does not say where {shown(key)} lies")
        return ValueItem(key, self.path(key), extent)

    def tensor(self, key: str, value: Raw) -> TensorItem:
        parts = attributes(value)
        shape = sizes(parts.get("size"))
        dtype, requires_grad = _properties(parts.get("properties"))
        chunks = parts.get("chunks")
        if shape is None or dtype is None or not isinstance(chunks, list | tuple):
            raise self.damage(f"{shown(key)} has no size or dtype that is known")
        return TensorItem(
            key,
            self.path(key),
            TensorSpec(dtype, shape),
            tuple(self.chunk(key, one) for one in chunks),
            requires_grad,
        )

    def chunk(self, key: str, value: Raw) -> Chunk:
        if not classes.is_of(value, classes.CHUNK):
            raise self.damage(f"a chunk of {shown(key)} is {_unknown(value)}")
        parts = attributes(value)
        offsets, shape = sizes(parts.get("offsets")), sizes(parts.get("sizes"))
        if offsets is None or shape is None:
            raise self.damage(f"a chunk of {shown(key)} has no offsets or sizes")
        extent = self.extents.get((key, offsets))
        if extent is None:
            raise self.damage(f"storage_data does not say where the chunk of {shown(key)} at {list(offsets)} lies")
        return Chunk(offsets, shape, extent)

    def path(self, key: str) -> ItemPath:
        path = self.planned.get(key, (key,))
        if not isinstance(path, list | tuple) or not path or not all(type(one) in (str, int) for one in path):
            raise self.damage(f"the path of {shown(key)} is {shown(path)}")
        if len(path) >= MAX_RAW_DEPTH:
            raise CheckpointError(
                f"{self.where}: {shown(key)} lies {len(path)} levels deep: {MAX_RAW_DEPTH} are allowed"
            )
        return tuple(path)


def _properties(value: Raw) -> tuple[str | None, bool | None]:
    """Dtype and requires_grad of `TensorProperties`, whose state is a tuple in this order, in old files a dict."""
    state = value.state if isinstance(value, Foreign) and classes.is_of(value, classes.PROPERTIES) else None
    if isinstance(state, dict):
        state = (state.get("dtype"), None, state.get("requires_grad"))
    if not isinstance(state, tuple) or len(state) < 3:
        return None, None
    dtype = dtype_of(state[0])
    return dtype if dtype in ITEMSIZE_BYTES else None, True if state[2] is True else None

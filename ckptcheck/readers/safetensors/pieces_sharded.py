"""safetensors files that hold each rank's pieces of tensors, as torch's HF storage writer leaves them.

`shard-00001-model-00001-of-00001.safetensors`, ...; a file's metadata has DCP_SHARDING_INFO, a JSON text of {name:
{"saved_offsets": [...]}}. No file says how large the whole is: the farthest end of its pieces does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.folders.folder_files import INDEX, PIECE, is_candidate
from ckptcheck.readers.folders.sidecar import read_beside
from ckptcheck.readers.json_file import parse_json
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import quoted
from ckptcheck.state.pieces import Box, join_boxes
from ckptcheck.state.raw import Flaw, RawTensor, RawTree
from ckptcheck.state.tensor import TensorSpec

SHARDING_INFO: Final = "DCP_SHARDING_INFO"


def is_pieces_only(labels: Sequence[str]) -> bool:
    """Whether all files that belong to a checkpoint are pieces."""
    held = [label for label in labels if is_candidate(label)]
    return bool(held) and all(PIECE.fullmatch(label) for label in held) and not any(map(INDEX.fullmatch, labels))


def read_pieces(reading: Reading, folder: Path, names: Sequence[str], label: str) -> RawTree:
    """Every tensor joined from its pieces; `label` is the folder's path in the checkpoint, "" or ending in "/"."""
    trees: dict[str, RawTree] = {}
    for name in names:
        tree = read_beside(reading, folder, name, label + name)
        if tree is not None:
            trees[name] = tree
    _check_ranks(reading, names, label)
    boxes: dict[str, list[Box]] = {}
    dtypes: dict[str, set[str]] = {}
    for name, tree in trees.items():
        offsets = _offsets(tree, folder / name)
        for key, tensor in tree.root.items():
            boxes.setdefault(key, []).append(_box(tensor, offsets.get(key), f"{folder / name}: {quoted(key)}"))
            dtypes.setdefault(key, set()).add(tensor.spec.dtype)
    root = {}
    for key, pieces in boxes.items():
        joined = _join(pieces, dtypes[key])
        if isinstance(joined, str):
            reading.damaged(Flaw.SHARD_SET, label + names[0], f"tensor {quoted(key)}: {joined}")
        else:
            root[key] = joined
    return RawTree(
        path=reading.path,
        container="safetensors-sharded",
        root=root,
        nbytes=sum(tree.nbytes for tree in trees.values()),
        files={label + name: tree for name, tree in trees.items()},
        members=tuple(member for tree in trees.values() for member in tree.members),
        defects=tuple(reading.defects),
        facts={"checksums": "none", "shards": len(names), "pieces": True},
        check_unchanged=reading.pool.check_unchanged,
    )


def _check_ranks(reading: Reading, names: Sequence[str], label: str) -> None:
    numbers = {int(match["rank"]) for match in map(PIECE.fullmatch, names) if match}
    for number in sorted(set(range(1, max(numbers) + 1)) - numbers):
        reading.damaged(
            Flaw.INCOMPLETE, label + names[0], f"the pieces of shard {number} of {max(numbers)} are not there"
        )


def _offsets(tree: RawTree, path: Path) -> Mapping[str, Any]:
    text = tree.facts.get("metadata", {}).get(SHARDING_INFO)
    if not isinstance(text, str):
        raise DamagedCheckpointError(
            f"{path}: has no {SHARDING_INFO} in its metadata, so that nothing places its pieces"
        )
    value = parse_json(text.encode("utf-8", "surrogatepass"), f"{path}: {SHARDING_INFO}")
    if not isinstance(value, dict):
        raise DamagedCheckpointError(f"{path}: {SHARDING_INFO} is no JSON object")
    return value


def _box(tensor: RawTensor, described: Any, where: str) -> Box:
    offsets = described.get("saved_offsets") if isinstance(described, dict) else None
    fits = isinstance(offsets, list) and all(type(one) is int and 0 <= one < 2**62 for one in offsets)
    if not fits or len(offsets) != len(tensor.spec.shape):  # type: ignore[arg-type]
        raise DamagedCheckpointError(f"{where}: saved_offsets in {SHARDING_INFO} do not place a piece of {tensor.spec}")
    return Box(tuple(offsets), tensor.spec.shape, tensor.read_into)  # type: ignore[arg-type]


def _join(pieces: Sequence[Box], dtypes: set[str]) -> RawTensor | str:
    if len(dtypes) > 1:
        return f"has pieces of {' and '.join(sorted(dtypes))}"
    if len({len(piece.shape) for piece in pieces}) > 1:
        return "has pieces of several numbers of dimensions"
    axes = range(len(pieces[0].shape))
    shape = tuple(max(piece.offsets[axis] + piece.shape[axis] for piece in pieces) for axis in axes)
    spec = TensorSpec(dtypes.copy().pop(), shape)
    try:
        return RawTensor(spec, join_boxes(spec, pieces))
    except ValueError as trouble:
        return str(trouble)

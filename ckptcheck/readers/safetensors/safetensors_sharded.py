"""Weights in several files with an index that says which tensor lies where, read as one dict of tensors.

`model.safetensors.index.json` and `pytorch_model.bin.index.json`: {"metadata": {"total_size"}, "weight_map": {name:
file}}. Older writers count a tied tensor twice in `total_size`, so that a sum too large is told and is no damage.
"""

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.folders.folder_files import INDEX, PIECE, SHARD, at_top, is_candidate
from ckptcheck.readers.folders.sidecar import read_beside
from ckptcheck.readers.json_file import read_json
from ckptcheck.readers.reader import HEAD_BYTES, Head, Listing
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.safetensors.pieces_sharded import is_pieces_only, read_pieces
from ckptcheck.readers.source import Source, inside, quoted, said_of
from ckptcheck.state.raw import Flaw, Raw, RawTensor, RawTree

INDEX_SUFFIX: Final = ".index.json"
PIECES_FOLDER: Final = "sharded"
"""Where torch's consolidating writer leaves the ranks' pieces beside the whole."""


class ShardIndex:
    """The path of the index itself: the whole set beside it."""

    def claims(self, head: Head) -> bool:
        """JSON with a weight map near its beginning."""
        return head.start.lstrip()[:1] == b"{" and b'"weight_map"' in head.start

    def read(self, source: Source, reading: Reading) -> RawTree:
        """All tensors of the set. CheckpointError where the index names a file outside its folder."""
        return read_set(source, reading)


class ShardedFolder:
    """A folder with one set of shards and nothing else that belongs to a checkpoint."""

    def claims(self, listing: Listing) -> bool:
        """One index at the top, or the pieces of torch's HF storage writer without one."""
        top = at_top(listing)
        indices = [label for label in top if INDEX.fullmatch(label)]
        inner = f"{PIECES_FOLDER}/" if indices else "\0"
        rest = [
            label
            for label in listing.files
            if is_candidate(label) and not INDEX.fullmatch(label) and not SHARD.fullmatch(label)
            if not label.startswith(inner)
        ]
        return not rest and (len(indices) == 1 or is_pieces_only(top))

    def read(self, listing: Listing, reading: Reading) -> RawTree:
        """All tensors of the set; what is wrong with it goes to `reading.damaged`."""
        index = next((label for label in at_top(listing) if INDEX.fullmatch(label)), None)
        if index is None:
            return read_pieces(reading, listing.path, [one for one in at_top(listing) if PIECE.fullmatch(one)], "")
        return read_set(reading.pool.open(inside(listing.path, index), index), reading)


@dataclass(frozen=True, slots=True)
class _Index:
    """An index: file by tensor name, and the promised sum of bytes where there is one."""

    files: Mapping[str, str]
    total_bytes: int | None
    metadata: Mapping[str, Any]


def read_set(source: Source, reading: Reading) -> RawTree:
    """The tensors of the index `source` and its shards, in the index's order."""
    index = _parse(source)
    shards = _Shards(index, source, reading)
    trees = shards.read()
    root = shards.placed(trees)
    shards.check_surplus()
    if len(root) == len(index.files):
        shards.check_total(root)
    is_safe = source.path.name.endswith(f".safetensors{INDEX_SUFFIX}")
    return RawTree(
        path=reading.path,
        container="safetensors-sharded" if is_safe else "torch-sharded",
        root=root,
        nbytes=source.nbytes + sum(tree.nbytes for tree in trees.values()),
        files={shards.prefix + name: tree for name, tree in trees.items()}
        | {source.label or source.path.name: RawTree(source.path, "json", None, source.nbytes)},
        members=tuple(member for tree in trees.values() for member in tree.members),
        globals=tuple(one for tree in trees.values() for one in tree.globals),
        defects=tuple(reading.defects),
        facts={
            "checksums": "none" if all(tree.container == "safetensors" for tree in trees.values()) else "crc32",
            "shards": len(set(index.files.values())),
            "metadata": _common_metadata(trees),
            "index_metadata": dict(index.metadata),
        },
        check_unchanged=reading.pool.check_unchanged,
    )


def _parse(source: Source) -> _Index:
    value = read_json(source)
    files = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise DamagedCheckpointError(f"{source}: is an index whose weight_map is no object of tensor name to file name")
    metadata = value.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    total = metadata.get("total_size")
    whole = int(total) if isinstance(total, int | float) and math.isfinite(total) else None
    return _Index(files, whole, metadata)


class _Shards:
    """The shards of one index while they are read and held against it."""

    def __init__(self, index: _Index, source: Source, reading: Reading) -> None:
        self.index = index
        self.source = source
        self.reading = reading
        self.folder = source.path.parent
        self.names = Counter(index.files.values())
        self.prefix = source.label[: len(source.label) - len(source.path.name)]

    def damaged(self, flaw: Flaw, file: str, said: str) -> None:
        """Where the index itself is the checkpoint, nothing has a place relative to it."""
        if self.source.label:
            self.reading.damaged(flaw, self.prefix + file, said)
        else:
            self.reading.damaged(flaw, "", f"{file}: {said}")

    def read(self) -> dict[str, RawTree]:
        trees: dict[str, RawTree] = {}
        for name, count in self.names.items():
            if not os.path.lexists(self.folder / name):
                self.damaged(Flaw.INCOMPLETE, name, f"is not there, and the index places {count} tensors in it")
                continue
            if self._is_index(name):
                self.damaged(Flaw.UNREADABLE, name, f"is an index, and the index places {count} tensors in it")
                continue
            try:
                tree = read_beside(self.reading, self.folder, name, self.prefix + name)
            except DamagedCheckpointError:
                raise
            except CheckpointError as trouble:  # whole, but no checkpoint
                said = said_of(trouble, self.folder / name)
                self.damaged(Flaw.UNREADABLE, name, f"the index places {count} tensors in it, and it {said}")
                continue
            if tree is not None:
                trees[name] = tree
        return trees

    def _is_index(self, name: str) -> bool:
        """Whether a shard is an index itself, which could lead back here."""
        try:
            shard = self.reading.pool.open(inside(self.folder, name), self.prefix + name)
        except CheckpointError:
            return False
        return ShardIndex().claims(Head(shard, shard.head(HEAD_BYTES)))

    def placed(self, trees: Mapping[str, RawTree]) -> dict[str, Raw]:
        root: dict[str, Raw] = {}
        lost: dict[str, list[str]] = {}
        for name, file in self.index.files.items():
            held = trees[file].root if file in trees else None
            if isinstance(held, Mapping) and name in held:
                root[name] = held[name]
            elif file in trees:
                lost.setdefault(file, []).append(name)
        for file, names in lost.items():
            said = f"lacks {len(names)} tensors that the index places there, {quoted(names[0])} the first"
            self.damaged(Flaw.INCOMPLETE, file, said)
        for file, tree in trees.items():
            held = tree.root if isinstance(tree.root, Mapping) else {}
            surplus = [name for name in held if self.index.files.get(name) != file]
            if surplus:
                said = (
                    f"holds {len(surplus)} tensors that the index does not place there, {quoted(surplus[0])} the first"
                )
                self.damaged(Flaw.SHARD_SET, file, said)
        return root

    def check_surplus(self) -> None:
        shards = [match for match in map(SHARD.fullmatch, self.names) if match]
        kinds = {(match["stem"], match["kind"]) for match in shards}
        try:
            beside = sorted(one.name for one in self.folder.iterdir())
        except OSError as trouble:
            raise CheckpointError(f"{self.folder}: cannot be read ({trouble.strerror})") from trouble
        for name in beside:
            match = SHARD.fullmatch(name)
            if match and (match["stem"], match["kind"]) in kinds and name not in self.names:
                self.damaged(Flaw.SHARD_SET, name, "the index places no tensor in this shard: it is of another save")

    def check_total(self, root: Mapping[str, Raw]) -> None:
        tensors = [one for one in root.values() if isinstance(one, RawTensor)]
        least = sum({one.place: one.spec.nbytes for one in tensors if one.place}.values())
        promised = self.index.total_bytes
        if promised is not None and promised < least:
            said = f"promises {promised} bytes of tensors, the shards hold {least}: they are of different saves"
            self.damaged(Flaw.SHARD_SET, self.source.path.name, said)


def _common_metadata(trees: Mapping[str, RawTree]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tree in trees.values():
        found.update(tree.facts.get("metadata", {}))
    return found

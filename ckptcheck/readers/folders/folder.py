"""A folder of files that together are one checkpoint, whoever wrote it: a dict of relative path to file.

HF Trainer, Accelerate, PEFT, DeepSpeed and Megatron tags, an unpacked archive. Shards with an index are one entry,
as is a sub-folder that is a checkpoint of its own kind.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.folders import folder_files as names
from ckptcheck.readers.folders.half_saves import check_saved_whole
from ckptcheck.readers.folders.lost_parts import lost_parts
from ckptcheck.readers.folders.rank_files import join_rank_files
from ckptcheck.readers.folders.several import check_one_checkpoint
from ckptcheck.readers.folders.sidecar import note, read_beside
from ckptcheck.readers.folders.trackers import tag_of
from ckptcheck.readers.reader import HEAD_BYTES, Head, Listing
from ckptcheck.readers.safetensors.pieces_sharded import read_pieces
from ckptcheck.readers.safetensors.safetensors_sharded import INDEX_SUFFIX, PIECES_FOLDER, ShardedFolder, read_set
from ckptcheck.readers.source import inside
from ckptcheck.state.raw import Defect, Flaw, RawTree

if TYPE_CHECKING:
    from ckptcheck.readers.reading import Reading

MAX_SETS: Final = 100
"""Sets of shards, and sub-folders of their own kind, in one folder."""
MAX_OTHER_JSON_BYTES: Final = 8 * 2**20
"""Of a JSON file whose name says nothing."""
LFS_POINTER: Final = b"version https://git-lfs"


class Folder:
    """Any folder with files of a checkpoint; the last in the table. Container "folder"."""

    def claims(self, listing: Listing) -> bool:
        """Whether it holds a file at all."""
        return bool(listing.files)

    def read(self, listing: Listing, reading: "Reading") -> RawTree:
        """All files that belong to a checkpoint. CheckpointError where there is none."""
        contents = _Contents(listing, reading)
        contents.read()
        files = dict(sorted(contents.files.items()))
        if not files and not reading.defects:
            raise _nothing(listing, contents.refused)
        check_one_checkpoint(listing, files)
        check_saved_whole(listing, files, reading)
        reading.defects += lost_parts(listing, files)
        files = join_rank_files(files, reading)
        return RawTree(
            path=reading.path,
            container="folder",
            root={label: tree.root for label, tree in files.items()},
            nbytes=sum(tree.nbytes for tree in files.values()),
            files=files,
            members=tuple(member for tree in files.values() for member in tree.members),
            globals=tuple(one for tree in files.values() for one in tree.globals),
            defects=tuple(reading.defects),
            facts=contents.facts(),
            check_unchanged=reading.pool.check_unchanged,
        )


class _Contents:
    """The files of one folder as they are read; `other` are those left out."""

    def __init__(self, listing: Listing, reading: "Reading") -> None:
        self.listing = listing
        self.reading = reading
        self.files: dict[str, RawTree] = {}
        self.other: list[str] = []
        self.refused: dict[str, str] = {}
        self.left_out = _left_out(listing)
        self.waiting = [one for one in names.visible(listing) if one.partition("/")[0] not in self.left_out]

    def read(self) -> None:
        self._folders()
        self._sets()
        self._pieces()
        for label in self.waiting:
            if names.is_weights(label):
                self._weights(label)
            elif names.is_candidate(label):
                self._json(label)
            else:
                self._unknown(label)

    def facts(self) -> Mapping[str, Any]:
        found = {
            "other_files": sorted(self.other)[: names.MAX_TOLD],
            "refused": self.refused,
            "folders_left_out": sorted(self.left_out),
            "temporary_folders": [one for one in self.listing.folders if names.TEMPORARY.fullmatch(one)],
        }
        return {key: value for key, value in found.items() if value}

    def _folders(self) -> None:
        """Sub-folders of a kind of their own: DCP, a store."""
        for folder in names.marked_folders(self.waiting):
            held = [label for label in self.waiting if label.startswith(f"{folder}/")]
            sub = _sub_listing(self.listing, folder, held)
            reader = next((one for one in _own_kinds() if one.claims(sub)), None) if held else None
            if reader is None:
                continue
            try:
                self.files[folder] = reader.read(sub, self.reading)
            except DamagedCheckpointError as trouble:
                note(self.reading, trouble, folder)
            self._done(held)

    def _sets(self) -> None:
        """Each index with its shards, and with the ranks' pieces that torch leaves beside what it consolidated."""
        indices = [one for one in self.waiting if names.INDEX.fullmatch(_split(one)[1])]
        if len(indices) > MAX_SETS:
            raise CheckpointError(f"{self.listing.path}: holds {len(indices)} indices of shards: not read")
        for label in indices:
            prefix = _split(label)[0]
            stem = label.removesuffix(INDEX_SUFFIX)
            try:
                source = self.reading.pool.open(inside(self.listing.path, label), label)
                self.files[stem] = read_set(source, self.reading)
            except CheckpointError as trouble:
                note(self.reading, trouble, label)
            kind = stem.rpartition(".")[2]
            pieces = f"{prefix}{PIECES_FOLDER}/"
            self._done(
                [label, *(one for one in self.waiting if one.startswith(pieces) or _is_shard(one, prefix, kind))]
            )

    def _pieces(self) -> None:
        """The ranks' pieces of one folder are one set."""
        found: dict[str, list[str]] = {}
        for label in self.waiting:
            prefix, name = _split(label)
            if names.PIECE.fullmatch(name):
                found.setdefault(prefix, []).append(name)
        for prefix, held in found.items():
            try:
                self.files[f"{prefix}model.safetensors"] = read_pieces(
                    self.reading, self.listing.path / prefix, held, prefix
                )
            except CheckpointError as trouble:
                note(self.reading, trouble, prefix + held[0])
        self._done([prefix + name for prefix, held in found.items() for name in held])

    def _weights(self, label: str) -> None:
        try:
            tree = read_beside(self.reading, self.listing.path, label, label)
        except CheckpointError as trouble:
            if isinstance(trouble, DamagedCheckpointError):
                raise
            self._refuse(label, trouble)
            return
        if tree is not None:
            if label in self.files:  # a set of shards of this name
                said = f"its shards stand beside {label}, which loaders take in their place: one is of another save"
                self.reading.defects.append(Defect(Flaw.SHARD_SET, label + INDEX_SUFFIX, said))
            self.files[label] = tree

    def _refuse(self, label: str, trouble: CheckpointError) -> None:
        """A whole file that is no checkpoint; one that stands for weights which were not fetched is damage."""
        start = self.reading.pool.open(self.listing.files[label], label).head(HEAD_BYTES)
        if label.endswith(".safetensors") or start.startswith(LFS_POINTER):
            note(self.reading, DamagedCheckpointError(str(trouble), Flaw.INCOMPLETE), label)
            return
        self.other.append(label)
        self.refused[label] = str(trouble)

    def _json(self, label: str) -> None:
        try:
            if label.rpartition("/")[2] in names.STATE_JSON:
                tree = read_beside(self.reading, self.listing.path, label, label)
                self.files.update({label: tree} if tree else {})
            else:
                source = self.reading.pool.open(inside(self.listing.path, label), label)
                if source.nbytes > MAX_OTHER_JSON_BYTES:
                    raise CheckpointError(f"{source}: more likely data than a part of a checkpoint")
                self.files[label] = self.reading.content(source)
        except CheckpointError as trouble:
            if label.rpartition("/")[2] not in names.STATE_JSON:
                self.other.append(label)
            elif isinstance(trouble, DamagedCheckpointError):
                raise
            else:
                note(self.reading, trouble, label)

    def _unknown(self, label: str) -> None:
        """A file whose name says nothing: taken in where its first bytes are those of a torch or safetensors file."""
        suffix = "." + label.rpartition("/")[2].rpartition(".")[2]
        if suffix in names.OTHER_SUFFIXES or label.endswith(".json"):
            self.other.append(label)
            return
        try:
            source = self.reading.pool.open(inside(self.listing.path, label), label)
            if names.looks_like_tensors(Head(source, source.head(HEAD_BYTES)).start):
                self.files[label] = self.reading.content(source)
                return
        except CheckpointError as trouble:
            if isinstance(trouble, DamagedCheckpointError):
                note(self.reading, trouble, label)
                return
        self.other.append(label)

    def _done(self, labels: list[str]) -> None:
        gone = set(labels)
        self.waiting = [one for one in self.waiting if one not in gone]


def _left_out(listing: Listing) -> set[str]:
    """Sub-folders that are checkpoints of the run beside this one, and saves that did not end."""
    tag = tag_of(listing)
    numbered = {one for one in listing.folders if names.NUMBERED.fullmatch(one)}
    kept = {one for one in numbered if one == tag or (tag is None and one.startswith("global_step"))}
    if names.RECIPE_STATE in listing.files:
        kept |= set(sorted(numbered, key=_number)[-1:])
    return (numbered - kept) | {one for one in listing.folders if names.TEMPORARY.fullmatch(one)}


def _number(folder: str) -> int:
    match = names.NUMBERED.fullmatch(folder)
    return int(match["number"]) if match else -1


def _own_kinds() -> list[Any]:
    from ckptcheck.readers.folders.run_folder import RunFolder
    from ckptcheck.readers.table import FOLDER_READERS

    return [one for one in FOLDER_READERS if not isinstance(one, Folder | RunFolder | ShardedFolder)]


def _sub_listing(listing: Listing, folder: str, held: list[str]) -> Listing:
    inner = {label.removeprefix(f"{folder}/"): listing.files[label] for label in held}
    folders = {one.partition("/")[0] for one in inner if "/" in one}
    return Listing(listing.path / folder, inner, {one: listing.path / folder / one for one in sorted(folders)})


def _split(label: str) -> tuple[str, str]:
    """The folder with its "/", "" at the top, and the name."""
    folder, slash, name = label.rpartition("/")
    return folder + slash, name


def _is_shard(label: str, prefix: str, kind: str) -> bool:
    folder, name = _split(label)
    match = names.SHARD.fullmatch(name) if folder == prefix else None
    return match is not None and match["kind"] == kind


def _nothing(listing: Listing, refused: Mapping[str, str]) -> CheckpointError:
    if refused:
        return CheckpointError(next(iter(refused.values())))
    return CheckpointError(f"{listing.path}: no checkpoint is in this folder: name the checkpoint's own file or folder")

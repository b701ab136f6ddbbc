"""Folders of torch.distributed.checkpoint: `.metadata` and slices in `*.distcp` files, read as logical tensors.

Values that are no tensors are read at once, slices of tensors when somebody asks for their bytes.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.dcp.dcp_classes import changed_name
from ckptcheck.readers.dcp.dcp_metadata import Chunk, DcpMetadata, Extent, TensorItem, parse_metadata
from ckptcheck.readers.dcp.dcp_slices import SliceRead, Slices
from ckptcheck.readers.dcp.nesting import ClashError, nested
from ckptcheck.readers.folders.folder_files import DCP_METADATA, DCP_SUFFIX
from ckptcheck.readers.folders.sidecar import label_prefix
from ckptcheck.readers.pickle.pickles import Pickled, read_pickle
from ckptcheck.readers.plain_member import plain_member
from ckptcheck.readers.reader import Listing
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source, said_of
from ckptcheck.state.pieces import Box, join_boxes
from ckptcheck.state.raw import Defect, Flaw, Member, Raw, RawTensor, RawTree, ReadInto, Storage
from ckptcheck.state.tensor import TensorSpec

BESIDE: Final = ("meta.pt", "common.pt", "metadata.json")
"""What frameworks keep beside the slices: Lightning, Megatron."""
_MEGATRONS: Final = "common.pt"
_MEGATRONS_END: Final = "metadata.json"
"""What Megatron's own format has beside the slices: the one before they are written, the other after it."""
MAX_METADATA_BYTES: Final = 512 << 20
_PICKLE: Final = b"\x80"


class Dcp:
    """A `FolderReader` of distributed checkpoints."""

    def claims(self, listing: Listing) -> bool:
        """Whether the folder holds `.metadata`, or slices without it."""
        return DCP_METADATA in listing.files or any(_is_slice(name) for name in listing.files)

    def read(self, listing: Listing, reading: Reading) -> RawTree:
        """Describe the folder.

        DamagedCheckpointError for an interrupted save, missing files, and chunks that do not fit each other.
        """
        path = listing.files.get(DCP_METADATA)
        if path is None:
            raise DamagedCheckpointError(
                f"{listing.path}: holds {DCP_SUFFIX} files but no {DCP_METADATA}, which is written last: the save was "
                f"interrupted; use another checkpoint",
                Flaw.INCOMPLETE,
            )
        return _Folder(listing, reading).tree(path)


def _is_slice(name: str) -> bool:
    return name.endswith(DCP_SUFFIX) and "/" not in name


class _Folder:
    """One folder being read. Files are labelled relative to the whole checkpoint, which may hold this folder."""

    def __init__(self, listing: Listing, reading: Reading) -> None:
        self.listing = listing
        self.reading = reading
        self.prefix = label_prefix(reading, listing.path)
        self.slices = Slices(listing, self.prefix, reading)

    def tree(self, path: Path) -> RawTree:
        source = self.reading.pool.open(path, self.prefix + DCP_METADATA)
        described = _pickled(source)
        changed = changed_name(described.globals)
        if changed is not None:
            raise DamagedCheckpointError(f"{path}: names the class {changed}, which torch's reader does not know")
        metadata = parse_metadata(described.value, str(path))
        self.check_files(metadata)
        self.check_sharing(metadata)
        self.check_end()
        self.slices.note_globals(described.globals)
        try:
            root = nested(self.leaves(metadata))
        except ClashError as trouble:
            raise DamagedCheckpointError(f"{path}: names of items do not fit each other: {trouble}") from trouble
        names = [name for name in BESIDE if name in self.listing.files]
        beside = {name: self.reading.file(self.listing.files[name], self.prefix + name) for name in names}
        for tree in beside.values():
            self.slices.note_globals(tree.globals)
        members = *self.members(metadata), plain_member(source, DCP_METADATA)
        held = [source, *(one for one in self.slices.sources.values() if one)]
        return RawTree(
            self.listing.path,
            "dcp",
            root,
            sum(one.nbytes for one in held) + sum(tree.nbytes for tree in beside.values()),
            files=beside,
            members=members + tuple(one for tree in beside.values() for one in tree.members),
            globals=tuple(self.slices.globals.values()),
            defects=tuple(self.reading.defects),
            facts={
                **metadata.facts,
                "checksums": "on" if self.slices.has_checksums else "off",
                "files": len(self.slices.sources),
                "unordered": metadata.unordered(),
            },
            check_unchanged=self.reading.pool.check_unchanged,
        )

    def check_files(self, metadata: DcpMetadata) -> None:
        """Open every file that the metadata names, hold each extent against its size, and look for files of others."""
        beyond: dict[str, list[str]] = {}
        for name, extent, _ in metadata.extents():
            source = self.slices.source(extent.file)
            if source is not None and not self.slices.is_there(extent):
                where = f"{name} lies in bytes {extent.begin} to {extent.begin + extent.nbytes}"
                beyond.setdefault(extent.file, []).append(f"{where}, but the file holds {source.nbytes}")
        for file, said in beyond.items():
            more = f" (and {len(said) - 1} more)" if len(said) > 1 else ""
            self.reading.damaged(Flaw.UNREADABLE, self.prefix + file, f"{said[0]}{more}: it was cut short")
        named = {PurePosixPath(name).as_posix() for name in self.slices.sources}
        for name in self.listing.files:
            if _is_slice(name) and name not in named:
                self.note_surplus(name)

    def check_end(self) -> None:
        """Megatron marks a whole save at its end. The slices are there, so that this need not stop the reading."""
        if _MEGATRONS in self.listing.files and _MEGATRONS_END not in self.listing.files:
            said = f"{_MEGATRONS_END} is not there, which Megatron writes last: it would not load the folder"
            self.reading.defects.append(Defect(Flaw.INCOMPLETE, self.prefix.rstrip("/"), said))

    def check_sharing(self, metadata: DcpMetadata) -> None:
        """No writer stores two chunks as one slice."""
        holders: dict[tuple[str, int], str] = {}
        shared: dict[str, list[str]] = {}
        for name, extent, spec in metadata.extents():
            holder = holders.setdefault((extent.file, extent.begin), name)
            if spec is not None and extent.nbytes and holder is not name:
                said = f"{holder} and {name} are both said to lie at byte {extent.begin}"
                shared.setdefault(extent.file, []).append(said)
        for file, all_said in shared.items():
            more = f" (and {len(all_said) - 1} more)" if len(all_said) > 1 else ""
            said = f"{all_said[0]}{more}: {DCP_METADATA} does not describe this save"
            self.reading.damaged(Flaw.SHARD_SET, self.prefix + file, said)

    def note_surplus(self, name: str) -> None:
        """A file that the metadata does not name: harmless to whoever loads, a sign of two saves in one folder.

        A writer thread that got nothing to write leaves an empty one.
        """
        try:
            nbytes = self.reading.pool.open(self.listing.files[name], self.prefix + name).nbytes
        except CheckpointError:
            return  # a link to nowhere, or no file at all
        if nbytes:
            said = f"{DCP_METADATA} does not name this file of {nbytes} bytes: it is left over from another save"
            self.reading.defects.append(Defect(Flaw.SHARD_SET, self.prefix + name, said, {"bytes": nbytes}))

    def leaves(self, metadata: DcpMetadata) -> Iterator[tuple[tuple[str | int, ...], Raw]]:
        for item in metadata.items:
            if isinstance(item, TensorItem):
                self.slices.count(1)
                yield item.path, self.tensor(item)
                continue
            if not self.slices.is_there(item.extent):
                continue  # told with its file
            try:
                yield item.path, self.slices.value(item.key, item.extent)
            except DamagedCheckpointError as trouble:
                if self.reading.strict:
                    raise
                label = self.prefix + item.extent.file
                said = said_of(trouble, self.listing.path / item.extent.file)
                self.reading.defects.append(Defect(Flaw(trouble.flaw), label, f"{item.key}: {said}"))

    def tensor(self, item: TensorItem) -> RawTensor:
        try:
            read_into = join_boxes(item.spec, [self.box(item, chunk) for chunk in item.chunks])
        except ValueError as trouble:
            said = f"chunks of {item.key} do not fit each other: {trouble}"
            self.reading.damaged(Flaw.SHARD_SET, self.prefix + DCP_METADATA, said)
            read_into = _refusing(f"{self.listing.path}: {said}")
        file = self.prefix + item.chunks[0].extent.file if len(item.chunks) == 1 else ""
        storage = Storage(file, item.key, item.spec.nbytes)
        return RawTensor(item.spec, read_into, storage, requires_grad=item.requires_grad)

    def box(self, item: TensorItem, chunk: Chunk) -> Box:
        spec = TensorSpec(item.spec.dtype, chunk.shape)
        return Box(chunk.offsets, chunk.shape, SliceRead(self.slices, item.key, spec, chunk.extent))

    def members(self, metadata: DcpMetadata) -> Iterator[Member]:
        """One for each slice and value that is there; the first tells whether the writer wrote checksums."""
        seen: set[Extent] = set()
        for name, extent, spec in metadata.extents():
            if extent in seen or not self.slices.is_there(extent):
                continue
            seen.add(extent)
            self.slices.look_for_checksums(extent)
            verify = self.slices.verifier(name, extent, spec)
            yield Member(self.prefix + extent.file, name, extent.nbytes, bool(self.slices.has_checksums), verify)


def _pickled(source: Source) -> Pickled:
    if source.nbytes > MAX_METADATA_BYTES:
        raise CheckpointError(f"{source}: has {source.nbytes} bytes: {MAX_METADATA_BYTES} are allowed")
    content = source.read(0, source.nbytes)
    if not content.startswith(_PICKLE):
        raise DamagedCheckpointError(f"{source}: does not begin as a pickle does: damaged, take another copy")
    return read_pickle(content, where=str(source), file=source.label, bounded=False)


def _refusing(said: str) -> ReadInto:
    def read_into(start: int, buffer: memoryview) -> None:
        raise DamagedCheckpointError(said, Flaw.SHARD_SET)

    return read_into

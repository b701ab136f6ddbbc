"""The slices of a distributed checkpoint: stretches of `*.distcp` files, each a small torch.save of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.archives.zip_content import members_of
from ckptcheck.readers.archives.zip_directory import open_zip
from ckptcheck.readers.dcp.dcp_metadata import Extent
from ckptcheck.readers.reader import Listing
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source, inside, said_of
from ckptcheck.readers.torch.torch_zip import read_torch_zip
from ckptcheck.state.raw import (
    MAX_RAW_VALUES,
    Defect,
    Flaw,
    Foreign,
    Global,
    Raw,
    RawTensor,
    RawTree,
    Stretch,
    Verify,
    Watch,
    stretches,
)
from ckptcheck.state.tensor import TensorSpec

MAX_VALUE_BYTES: Final = 256 << 20
"""Longest pickled object that is no tensor: a data loader's state may be large, a model is not kept so."""
MAX_ALIKE_BYTES: Final = 8192
"""Values up to this size are read once where several have the same bytes: hyperparameters of each parameter."""
OPEN_SLICES: Final = 256
"""Slices whose description is kept for the next read."""


class Slices:
    """The files of one folder, and what lies in them.

    `prefix` is what the files' labels begin with in the whole checkpoint. `sources` are the files that the metadata
    names, by name, None for one that is missing; `globals` what the values' pickles name.
    """

    def __init__(self, listing: Listing, prefix: str, reading: Reading) -> None:
        self.folder = listing.path
        self.files = listing.files
        self.prefix = prefix
        self.reading = reading
        self.sources: dict[str, Source | None] = {}
        self.globals: dict[tuple[str, str], Global] = {}
        self.has_checksums: bool | None = None
        self.opened = lru_cache(OPEN_SLICES)(self._opened)
        self._alike: dict[bytes, tuple[Raw, int]] = {}
        self._sound: set[tuple[Extent, TensorSpec]] = set()
        self._count = 0

    def source(self, name: str) -> Source | None:
        """A file that the metadata names; None where it is missing and the reading goes on."""
        if name not in self.sources:
            path = inside(self.folder, name)
            if PurePosixPath(name).as_posix() in self.files:
                self.sources[name] = self.reading.pool.open(path, self.prefix + name)
            else:
                self.sources[name] = None
                said = ".metadata names this file, which is not there: copy it too, or use another checkpoint"
                self.reading.damaged(Flaw.INCOMPLETE, self.prefix + name, said)
        return self.sources[name]

    def is_there(self, extent: Extent) -> bool:
        """Whether the file is there and long enough."""
        source = self.source(extent.file)
        return source is not None and extent.begin + extent.nbytes <= source.nbytes

    def window(self, extent: Extent) -> Source:
        """A slice's bytes. DamagedCheckpointError where the file is missing or too short."""
        source = self.source(extent.file)
        if source is None:
            raise DamagedCheckpointError(f"{self.folder / extent.file}: is missing", Flaw.INCOMPLETE)
        return source.window(extent.begin, extent.nbytes)

    def value(self, key: str, extent: Extent) -> Raw:
        """An object that is no tensor, read now. All together have at most `MAX_RAW_VALUES` values."""
        window = self.window(extent)
        if window.nbytes > MAX_VALUE_BYTES:
            raise CheckpointError(f"{window}: {key} takes {window.nbytes} bytes: {MAX_VALUE_BYTES} are allowed")
        content = window.head(MAX_ALIKE_BYTES + 1)
        known = self._alike.get(content)
        if known is None:
            value = self._decoded(window)
            known = value, count_values(value)
            if len(content) <= MAX_ALIKE_BYTES:
                self._alike[content] = known
        self.count(known[1])
        return known[0]

    def count(self, values: int) -> None:
        """Account for values. CheckpointError beyond `MAX_RAW_VALUES`."""
        self._count += values
        if self._count > MAX_RAW_VALUES:
            raise CheckpointError(f"{self.folder}: holds more than {MAX_RAW_VALUES} values: not read")

    def _decoded(self, window: Source) -> Raw:
        tree = read_torch_zip(window, self.reading)
        self.note_globals(tree.globals)
        self._note_checksums(tree)
        return tree.root

    def _opened(self, key: str, spec: TensorSpec, extent: Extent) -> RawTensor:
        """A slice of a tensor; DamagedCheckpointError where it is not what the metadata says."""
        window = self.window(extent)
        found = read_torch_zip(window, self.reading, notes=False).root
        if not isinstance(found, RawTensor) or found.spec != spec:
            raise DamagedCheckpointError(f"{window}: {_contradicted(key, spec, extent, found)}", Flaw.SHARD_SET)
        self._sound.add((extent, spec))
        return found

    def look_for_checksums(self, extent: Extent) -> None:
        """Let one slice tell whether the writer wrote checksums, where no value has told it."""
        if self.has_checksums is not None:
            return
        try:
            self._note_checksums(read_torch_zip(self.window(extent), self.reading))
        except CheckpointError:
            return  # what is wrong with it comes out where it is verified

    def _note_checksums(self, tree: RawTree) -> None:
        held = bool(tree.members) and all(one.has_checksum for one in tree.members)
        self.has_checksums = held and self.has_checksums is not False

    def verifier(self, name: str, extent: Extent, spec: TensorSpec | None) -> Verify:
        """What a slice's `Member` verifies: the checksums of all that is in it, and that it holds a tensor of `spec`.

        Without a `spec` it holds any other value.
        """
        label = self.prefix + extent.file

        def verify(watch: Watch | None = None) -> Defect | None:
            try:
                window = self.window(extent)
                if spec is not None and (extent, spec) in self._sound:  # its pickle was read, its bytes were not
                    tree, members = None, members_of(open_zip(window))
                else:
                    tree = read_torch_zip(window, self.reading, notes=False)
                    members = tree.members
                found = next((one for member in members if (one := member.verify(watch)) is not None), None)
            except CheckpointError as trouble:
                flaw = Flaw(getattr(trouble, "flaw", Flaw.UNREADABLE))
                return Defect(flaw, label, f"{name}: {said_of(trouble, self.folder / extent.file)}")
            if found is not None:
                return replace(found, file=label, said=f"{name}: {found.said}")
            if tree is None or spec is None or (isinstance(tree.root, RawTensor) and tree.root.spec == spec):
                return None
            return Defect(Flaw.SHARD_SET, label, _contradicted(name, spec, extent, tree.root))

        return verify

    def note_globals(self, found: tuple[Global, ...]) -> None:
        """Keep what a pickle names, counting what several name in one file."""
        for one in found:
            known = self.globals.get((one.file, one.name))
            self.globals[one.file, one.name] = replace(one, count=one.count + known.count) if known else one


@dataclass(frozen=True, slots=True, eq=False)
class SliceRead:
    """A `ReadInto` of a slice that is opened when it is read."""

    slices: Slices
    key: str
    spec: TensorSpec
    extent: Extent

    def __call__(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on."""
        self.slices.opened(self.key, self.spec, self.extent).read_into(start, buffer)

    def stretches(self, start: int, nbytes: int) -> tuple[Stretch, ...] | None:
        """As `ckptcheck.state.raw.stretches`."""
        return stretches(self.slices.opened(self.key, self.spec, self.extent).read_into, start, nbytes)


def _contradicted(name: str, spec: TensorSpec, extent: Extent, found: Raw) -> str:
    held = found.spec if isinstance(found, RawTensor) else type(found).__name__
    return (
        f"the slice of {name} at byte {extent.begin} holds {held}, .metadata says {spec}: they are of different saves"
    )


def count_values(value: Raw) -> int:
    """Values in a raw value, as `MAX_RAW_VALUES` counts them."""
    total = 0
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        total += 1
        if isinstance(one, Foreign):
            waiting.append(one.unfold())
        elif isinstance(one, Mapping):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            waiting.extend(one)
    return total

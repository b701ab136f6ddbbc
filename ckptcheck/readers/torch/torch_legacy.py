"""torch.save before 1.6: pickles back to back, then every storage with its length; no directory, no checksum.

A magic number, the version 1001, facts of the system, the object, the list of storage keys; then for each key an
int64 count of elements and the bytes, both in the file's byte order. torch/serialization.py, `_legacy_load`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.folders.folder_files import LEGACY_MAGIC
from ckptcheck.readers.pickle.pickle_stream import PickleStream
from ckptcheck.readers.pickle.pickles import Pickled
from ckptcheck.readers.pickle.torch_tensors import FindRun, PendingStorage, itemsize_of, named_storage
from ckptcheck.readers.plain_member import plain_member
from ckptcheck.readers.reach import check_reach
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source
from ckptcheck.readers.tensor_bytes import ByteRun
from ckptcheck.state.raw import Member, Named, Raw, RawTree

VERSION: Final = 1001


class TorchLegacy:
    """One file in the stream format; container "torch-legacy"."""

    def claims(self, head: Head) -> bool:
        """The pickled magic number."""
        return head.start.startswith(LEGACY_MAGIC)

    def read(self, source: Source, reading: Reading) -> RawTree:
        """Describe the file. DamagedCheckpointError where it is cut short or its storages do not fit the pickle."""
        stream = PickleStream(source, str(source))
        stream.position = len(LEGACY_MAGIC)
        byteorder = _header(stream)
        storages = _Storages(source, byteorder == "big")
        pickled = stream.pickle(storages.find)
        members = storages.locate(stream, byteorder)
        check_reach(pickled.tensor_bytes, sum(one.nbytes for one in storages.runs.values()), source)
        return RawTree(
            path=reading.path,
            container="torch-legacy",
            root=pickled.value,
            nbytes=source.nbytes,
            members=tuple(members),
            globals=pickled.globals,
            facts=_facts(byteorder, pickled, storages, stream.left),
            check_unchanged=reading.pool.check_unchanged,
        )


def _facts(byteorder: str, pickled: Pickled, storages: "_Storages", left: int) -> dict[str, Any]:
    found: dict[str, Any] = {"byteorder": byteorder, "checksums": "none", "protocol": pickled.protocol}
    if storages.sources:
        found["source_files"] = sorted(storages.sources)
    if left:
        found["trailing_bytes"] = left
    return found


def _header(stream: PickleStream) -> str:
    """The byte order that the file says it has."""
    version, system = stream.pickle().value, stream.pickle().value
    if version != VERSION or type(version) is not int:
        raise CheckpointError(
            f"{stream.where}: is of version {str(version)[:20]} of torch's stream format, {VERSION} is known"
        )
    little = system.get("little_endian") if isinstance(system, Mapping) else None
    if not isinstance(little, bool):
        raise DamagedCheckpointError(f"{stream.where}: does not say its byte order")
    return "little" if little else "big"


@dataclass(slots=True, eq=False)
class LateRun:
    """A storage's bytes, whose place in the file is known when the file has been read to its end."""

    nbytes: int
    source: Source | None = None
    begin: int = 0

    def located(self) -> Source:
        """The stretch of the file."""
        if self.source is None:
            raise DamagedCheckpointError("a storage is read before its file was")
        return self.source.window(self.begin, self.nbytes)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on."""
        self.located().read_into(start, buffer)


class _Storages:
    """The storages that the pickle names; `sources` are names of source files that it holds."""

    def __init__(self, source: Source, is_big_endian: bool) -> None:
        self.source = source
        self.is_big_endian = is_big_endian
        self.sources: set[str] = set()
        self.runs: dict[str, LateRun] = {}
        self.numels: dict[str, int] = {}
        self.views: list[tuple[LateRun, str, int]] = []

    def find(self, persistent_id: Raw) -> Raw:
        """What a persistent id stands for: a storage, a part of one, or the class of a module with its source."""
        if isinstance(persistent_id, tuple) and len(persistent_id) == 4 and persistent_id[0] == "module":
            self.sources.add(str(persistent_id[2])[:200])
            return persistent_id[1] if isinstance(persistent_id[1], Named) else None
        whole = self._stored(persistent_id, self._run)
        self.numels[whole.storage.key] = whole.spec.numel
        view = persistent_id[5] if len(persistent_id) > 5 else None
        return whole if view is None else self._view(persistent_id, whole, view)

    def _stored(self, persistent_id: Raw, find: FindRun) -> PendingStorage:
        return named_storage(
            persistent_id, find, file=self.source.label, where=str(self.source), is_big_endian=self.is_big_endian
        )

    def _run(self, key: str, nbytes: int) -> ByteRun:
        run = self.runs.setdefault(key, LateRun(nbytes))
        if run.nbytes != nbytes:
            raise DamagedCheckpointError(f"{self.source}: the storage {key} is of {run.nbytes} and of {nbytes} bytes")
        return run

    def _view(self, persistent_id: tuple[Raw, ...], whole: PendingStorage, view: Raw) -> PendingStorage:
        """A part of a storage, as files before torch 0.4 have them."""
        size = itemsize_of(whole.dtype)
        fits = isinstance(view, tuple) and len(view) == 3 and all(type(one) is int and one >= 0 for one in view[1:])
        if not fits or view[1] + view[2] > whole.numel:
            raise DamagedCheckpointError(f"{self.source}: a view of the storage {persistent_id[2]} reaches beyond it")
        part = LateRun(view[2] * size)
        self.views.append((part, str(persistent_id[2]), view[1] * size))
        key = f"{persistent_id[2]}[{view[1]}:{view[1] + view[2]}]"
        return self._stored((*persistent_id[:2], key, persistent_id[3], view[2]), lambda _key, _nbytes: part)

    def locate(self, stream: PickleStream, byteorder: str) -> list[Member]:
        """Find every storage behind the pickles. DamagedCheckpointError where one is missing or of another length."""
        keys = stream.pickle().value
        if not isinstance(keys, list) or not all(isinstance(key, str | int) for key in keys):
            raise DamagedCheckpointError(f"{self.source}: does not list its storages")
        if {str(key) for key in keys} != self.runs.keys() or len(keys) != len(self.runs):
            raise DamagedCheckpointError(
                f"{self.source}: lists {len(keys)} storages, its pickle names {len(self.runs)}"
            )
        members = []
        for key in map(str, keys):
            run = self.runs[key]
            count = stream.integer(8, byteorder)
            if count != self.numels[key]:
                raise DamagedCheckpointError(
                    f"{self.source}: the storage {key} has {count} elements, its pickle promises {self.numels[key]}"
                )
            run.source = stream.window(run.nbytes)
            members.append(plain_member(run.source, key))
        for part, root, begin in self.views:
            part.source, part.begin = self.runs[root].source, begin
        return members

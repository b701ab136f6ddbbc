"""torch.save of 0.1: a tar of `storages`, `tensors` and `pickle`. torch/serialization.py, `legacy_load`.

`storages`: a pickled count; for each a pickle (key, location, class), an int64 of elements and the bytes; then a
pickled list of views (key, key of the whole, offset, elements). `tensors`: a pickled count; for each a pickle (key,
storage key, class), int32 dimensions, 4 bytes of padding, int64 lengths, strides and offset. `pickle`: the object,
whose persistent ids are those keys. All little-endian.
"""

from collections.abc import Callable
from typing import Final

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.archives.archive import is_whole
from ckptcheck.readers.archives.tar_members import is_tar, list_tar
from ckptcheck.readers.pickle.pickle_machine import Machine
from ckptcheck.readers.pickle.pickle_stream import PickleStream
from ckptcheck.readers.pickle.torch_tensors import MAX_NDIM, PendingStorage, itemsize_of, named_storage, view
from ckptcheck.readers.plain_member import plain_member
from ckptcheck.readers.reach import check_reach
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source
from ckptcheck.readers.tensor_bytes import ByteRun
from ckptcheck.state.raw import Flaw, Member, Named, Raw, RawTree

PARTS: Final = frozenset({"pickle", "storages", "tensors", "sys_info"})
MAX_COUNT: Final = 100_000


class TorchTar:
    """One file in the tar format; container "torch-tar"."""

    def claims(self, head: Head) -> bool:
        """A tar whose first member is one of the four."""
        name = head.start[:100].partition(b"\0")[0].decode("ascii", "replace")
        return is_whole(head.source) and is_tar(head.start) and name in PARTS

    def read(self, source: Source, reading: Reading) -> RawTree:
        """Describe the file. DamagedCheckpointError where a part is missing, cut short, or does not fit the others."""
        parts = {one.name: source.window(one.begin, one.nbytes) for one in list_tar(source).members}
        missing = sorted(PARTS - {"sys_info"} - parts.keys())
        if missing:
            raise DamagedCheckpointError(f"{source}: the tar has no {missing[0]!r}: cut short", Flaw.INCOMPLETE)
        contents = _Contents(source)
        contents.storages(PickleStream(parts["storages"], f"{source}: storages"))
        contents.tensors(PickleStream(parts["tensors"], f"{source}: tensors"))
        pickled = PickleStream(parts["pickle"], f"{source}: pickle").pickle(contents.find)
        check_reach(pickled.tensor_bytes, source.nbytes, source)
        return RawTree(
            path=reading.path,
            container="torch-tar",
            root=pickled.value,
            nbytes=source.nbytes,
            members=tuple(contents.members),
            globals=pickled.globals,
            facts={"byteorder": "little", "checksums": "none", "protocol": pickled.protocol},
            check_unchanged=reading.pool.check_unchanged,
        )


class _Contents:
    """Storages and tensors by key."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: dict[str, Raw] = {}
        self.members: list[Member] = []

    def find(self, persistent_id: Raw) -> Raw:
        key = persistent_id[0] if isinstance(persistent_id, tuple) and persistent_id else persistent_id
        if str(key) not in self.found or not isinstance(key, str | int):
            raise DamagedCheckpointError(f"{self.source}: pickle: names a tensor that is not in the tar")
        return self.found[str(key)]

    def storages(self, stream: PickleStream) -> None:
        for _ in range(_count(stream)):
            key, location, kind = _triple(stream)
            numel = stream.integer(8, "little")
            stored = self._stored(stream, (kind, key, location, numel), stream.window)
            self.found[str(key)] = stored
            if isinstance(stored.run, Source):
                self.members.append(plain_member(stored.run, str(key)))
        views = stream.pickle().value
        for one in views if isinstance(views, list) else ():
            self._view(stream, one)

    def _view(self, stream: PickleStream, described: Raw) -> None:
        fits = isinstance(described, tuple) and len(described) == 4
        root = self.found.get(str(described[1])) if fits else None
        if not isinstance(root, PendingStorage) or not all(type(one) is int and one >= 0 for one in described[2:]):
            raise DamagedCheckpointError(f"{stream.where}: lists a view of a storage that is not there")
        key, _, offset, numel = described
        size = itemsize_of(root.dtype)
        whole = root.run

        def part(nbytes: int) -> ByteRun:
            return whole.window(offset * size, nbytes) if isinstance(whole, Source) else whole

        self.found[str(key)] = self._stored(stream, (Named(root.class_name), key, root.device, numel), part)

    def _stored(
        self, stream: PickleStream, described: tuple[Raw, ...], find: Callable[[int], ByteRun]
    ) -> PendingStorage:
        """A storage (class, key, location, elements); `find` gives its bytes by their number."""
        return named_storage(
            ("storage", *described),
            lambda _key, nbytes: find(nbytes),
            file=self.source.label,
            where=stream.where,
            is_big_endian=False,
        )

    def tensors(self, stream: PickleStream) -> None:
        machine = Machine(b"", stream.where, {}, None, 0)
        for _ in range(_count(stream)):
            key, storage_key, _ = _triple(stream)
            stored = self.found.get(str(storage_key))
            ndim = stream.integer(4, "little")
            if not isinstance(stored, PendingStorage) or not 0 <= ndim <= MAX_NDIM:
                raise DamagedCheckpointError(f"{stream.where}: a tensor of {ndim} dimensions, or of no storage")
            stream.position += 4
            shape = tuple(stream.integer(8, "little") for _ in range(ndim))
            stride = tuple(stream.integer(8, "little") for _ in range(ndim))
            offset = stream.integer(8, "little")
            self.found[str(key)] = view(machine, stored, stored.dtype, (offset, shape, stride), None)


def _count(stream: PickleStream) -> int:
    count = stream.pickle().value
    if type(count) is not int or not 0 <= count <= MAX_COUNT:
        raise DamagedCheckpointError(f"{stream.where}: begins with no count")
    return count


def _triple(stream: PickleStream) -> tuple[Raw, Raw, Raw]:
    value = stream.pickle().value
    if not isinstance(value, tuple) or len(value) != 3 or not all(isinstance(one, str | int) for one in value[:2]):
        raise DamagedCheckpointError(f"{stream.where}: an entry is no triple of keys and a class")
    return value

"""torch.save since 1.6: a zip archive with the pickle `data.pkl` and a member `data/<key>` for each storage.

The format: caffe2/serialize/inline_container.cc and torch/serialization.py (`_save`, `_load`).
"""

import re
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.garbage import no_garbage_search
from ckptcheck.readers.archives.zip_content import check_unfolding, checksum_defect, members_of, read_member, run_of
from ckptcheck.readers.archives.zip_directory import LOCAL_MAGIC, STORED, ZipDirectory, ZipMember, open_zip
from ckptcheck.readers.pickle.pickles import MAX_PICKLE_BYTES, read_pickle
from ckptcheck.readers.pickle.torch_tensors import PendingStorage, named_storage
from ckptcheck.readers.reach import check_reach
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.refused import zip_refusal
from ckptcheck.readers.source import Source
from ckptcheck.readers.tensor_bytes import ByteRun
from ckptcheck.state.raw import Flaw, Raw, RawTree

MAX_NOTE_BYTES: Final = 4_096
"""Bytes of a member that holds one word."""
_PICKLE: Final = "data.pkl"
MAX_UNFOLDED_BYTES: Final = 1 << 25
"""A compressed pickle may unfold to this much: it could be a thousand times as long as the file."""
_NOTES: Final = {
    "version": "version", ".format_version": "format_version", ".storage_alignment": "storage_alignment",
    ".data/serialization_id": "serialization_id",
}  # fmt: skip
"""From a member with one word to what the facts call it."""
_BESIDE_PICKLE: Final = frozenset({*_NOTES, "byteorder"})
_STORAGE: Final = re.compile(r"data/\d+")


class TorchZip:
    """Reads what torch.save writes."""

    def claims(self, head: Head) -> bool:
        """Whether it is a zip with a pickle of torch, or what is left of one."""
        if not head.start.startswith(LOCAL_MAGIC):
            return False
        first = _first_name(head.start)
        if first.endswith("/" + _PICKLE) and first.count("/") == 1:
            return True
        try:
            names = set(open_zip(head.source).members)
        except CheckpointError:
            return first.rpartition("/")[2] in {_PICKLE, "byteorder", "version", ".format_version"}
        return zip_refusal(names) is None and (_root_of(names) is not None or _lacks_pickle(names))

    def read(self, source: Source, reading: Reading) -> RawTree:
        """Describe the file; errors as `read_torch_zip`'s."""
        return read_torch_zip(source, reading)


def read_torch_zip(source: Source, reading: Reading, *, notes: bool = True) -> RawTree:
    """Describe the torch.save archive that fills `source`, a file or a part of one; without `notes` it has no facts.

    Raises DamagedCheckpointError where it is cut short, half saved, or its parts do not fit each other;
    CheckpointError where it is no checkpoint, or beyond our bounds.
    """
    with no_garbage_search():
        return _described(source, reading, notes)


def _described(source: Source, reading: Reading, notes: bool) -> RawTree:
    directory = open_zip(source)
    names = set(directory.members)
    root = _root_of(names)
    begin = min((one.offset for one in directory.members.values()), default=0)
    if begin:
        raise CheckpointError(
            f"{source}: its last archive begins at byte {begin}: it holds several, like a .distcp file: name its folder"
        )
    refusal = zip_refusal(names)
    if root is None or refusal:
        if _lacks_pickle(names):
            raise DamagedCheckpointError(f"{source}: {_said_of_rest(names)}, use another checkpoint", Flaw.INCOMPLETE)
        raise CheckpointError(f"{source}: {refusal or 'is a zip archive without a checkpoint'}")
    check_unfolding(directory)
    storages = _Storages(directory, root, _is_big_endian(directory, root))
    data = _pickle_bytes(directory, directory.members[root + _PICKLE], reading)
    pickled = read_pickle(data, where=f"{source}: {_PICKLE}", file=source.label, persistent=storages.find)
    check_reach(pickled.tensor_bytes, storages.nbytes, source)
    return RawTree(
        reading.path,
        "torch-zip",
        pickled.value,
        source.nbytes,
        members=members_of(directory),
        globals=pickled.globals,
        facts=_facts(directory, root, pickled.protocol, storages.is_big_endian) if notes else {},
        check_unchanged=source.pool.check_unchanged,
    )


def _pickle_bytes(directory: ZipDirectory, member: ZipMember, reading: Reading) -> bytes:
    data = read_member(directory, member.name, MAX_PICKLE_BYTES if member.method == STORED else MAX_UNFOLDED_BYTES)
    defect = checksum_defect(directory, member, zlib.crc32(data))
    if defect and reading.strict:  # else whoever verifies the members finds it
        raise DamagedCheckpointError(f"{directory.source}: {defect.said}", defect.flaw)
    return data


@dataclass(slots=True, eq=False)
class _Storages:
    """The storages of an archive; each is described once."""

    directory: ZipDirectory
    root: str
    is_big_endian: bool
    found: dict[Any, PendingStorage] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Of all that were found."""
        return sum({one.storage.key: one.storage.nbytes for one in self.found.values()}.values())

    def find(self, persistent_id: Raw) -> PendingStorage:
        """What a persistent id stands for."""
        source = self.directory.source
        name = persistent_id[1:3] if type(persistent_id) is tuple and _is_plain_id(persistent_id) else None
        known = self.found.get(name) if name else None
        if known is None or known.numel != persistent_id[4]:
            known = named_storage(
                persistent_id,
                self._run,
                file=source.label,
                where=f"{source}: {_PICKLE}",
                is_big_endian=self.is_big_endian,
            )
            self.found[name] = known
        return known

    def _run(self, key: str, nbytes: int) -> ByteRun:
        source = self.directory.source
        member = self.directory.members.get(f"{self.root}data/{key}")
        if member is None:
            raise DamagedCheckpointError(f"{source}: the storage 'data/{key}' is missing: half saved", Flaw.INCOMPLETE)
        if member.nbytes != nbytes:
            raise DamagedCheckpointError(
                f"{source}: the storage 'data/{key}' has {member.nbytes} bytes, the pickle promises {nbytes}: damaged"
            )
        return run_of(self.directory, member)


def _is_plain_id(persistent_id: tuple[Raw, ...]) -> bool:
    return len(persistent_id) >= 5 and isinstance(persistent_id[1], str) and isinstance(persistent_id[2], str)


def _root_of(names: set[str]) -> str | None:
    """The folder of the archive's own pickle with its "/"; None without one."""
    found = [name.removesuffix(_PICKLE) for name in names if name.endswith("/" + _PICKLE) and name.count("/") == 1]
    return found[0] if len(found) == 1 else None


def _lacks_pickle(names: set[str]) -> bool:
    """Whether all that is there stands beside a pickle of torch, which itself is not."""
    inner = {name.partition("/")[2] for name in names}
    is_beside = all(name in _BESIDE_PICKLE or _STORAGE.fullmatch(name) for name in inner)
    return is_beside and not _BESIDE_PICKLE.isdisjoint(inner) and len({name.partition("/")[0] for name in names}) == 1


def _said_of_rest(names: set[str]) -> str:
    storages = sum(_STORAGE.fullmatch(name.partition("/")[2]) is not None for name in names)
    if storages:
        return f"holds {storages} storages and no {_PICKLE!r}, which says what they hold: half saved"
    return f"the save ended before it wrote {_PICKLE!r}: nothing can be restored"


def _first_name(start: bytes) -> str:
    length = int.from_bytes(start[26:28], "little")
    return start[30 : 30 + length].decode("utf-8", "replace")


def _note(directory: ZipDirectory, name: str) -> str | None:
    if name not in directory.members:
        return None
    return read_member(directory, name, MAX_NOTE_BYTES).decode("utf-8", "replace").strip()


def _is_big_endian(directory: ZipDirectory, root: str) -> bool:
    said = _note(directory, root + "byteorder")
    if said not in (None, "little", "big"):
        raise DamagedCheckpointError(f"{directory.source}: its byte order is {said!r}, neither little nor big: damaged")
    return said == "big"


def _facts(directory: ZipDirectory, root: str, protocol: int, is_big_endian: bool) -> dict[str, Any]:
    notes = {fact: _note(directory, root + name) for name, fact in _NOTES.items()}
    return {
        "byteorder": "big" if is_big_endian else "little",
        "checksums": "on" if directory.has_checksums else "off",
        "protocol": protocol,
        "compressed": any(one.method for one in directory.members.values()),
        **{fact: said for fact, said in notes.items() if said is not None},
        **({"trailing_bytes": directory.trailing_nbytes} if directory.trailing_nbytes else {}),
    }

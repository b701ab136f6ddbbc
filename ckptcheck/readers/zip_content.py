"""The bytes of a zip's members: stored ones where they lie, deflated ones unfolded from the front as they are read."""

import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.source import Source
from ckptcheck.readers.tensor_bytes import Run
from ckptcheck.readers.zip_directory import STORED, ZipDirectory, ZipMember
from ckptcheck.state.raw import Defect, Flaw, Member

BLOCK_BYTES: Final = 1 << 20
"""How much is read, or unfolded, at once."""
MAX_STREAMS: Final = 2
"""Positions in a deflated member from which it can be read on; two threads read two halves."""


@dataclass(slots=True, eq=False)
class StoredMember:
    """A member that lies in the file as it is. Its header is read when its bytes are first wanted."""

    directory: ZipDirectory
    member: ZipMember
    _source: Source | None = None

    @property
    def nbytes(self) -> int:
        """Its length."""
        return self.member.nbytes

    def located(self) -> Source:
        """Its stretch of the file; DamagedCheckpointError where its header does not fit the directory."""
        if self._source is None:
            self._source = self.directory.payload(self.member)
        return self._source

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on."""
        self.located().read_into(start, buffer)


class _Stream:
    """A deflated member being unfolded, at byte `position` of what it unfolds to."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.position = 0
        self._fed = 0
        self._inflate: Any = zlib.decompressobj(-zlib.MAX_WBITS)

    def take(self, most: int) -> bytes:
        """At most `most` bytes on; none where it has ended. DamagedCheckpointError where it is malformed."""
        while not self._inflate.eof:
            waiting = self._inflate.unconsumed_tail
            if not waiting:
                length = min(BLOCK_BYTES, self.source.nbytes - self._fed)
                waiting = self.source.read(self._fed, length)
                self._fed += length
            try:
                content: bytes = self._inflate.decompress(waiting, most)
            except zlib.error as trouble:
                raise DamagedCheckpointError(f"{self.source}: a compressed member is malformed ({trouble})") from None
            if content:
                self.position += len(content)
                return content
            if not waiting:
                break
        return b""


@dataclass(slots=True, eq=False)
class DeflatedMember:
    """A member that has to be unfolded from its front; reading on from where one read before takes no time twice.

    In memory are at most `MAX_STREAMS` blocks of input and their windows.
    """

    directory: ZipDirectory
    member: ZipMember
    _streams: list[_Stream] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def nbytes(self) -> int:
        """The length it unfolds to."""
        return self.member.nbytes

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on. DamagedCheckpointError where it unfolds to fewer or more bytes."""
        if start < 0 or start + len(buffer) > self.member.nbytes:
            raise self._wrong("has too few bytes")
        with self._lock:
            stream = self._stream_before(start)
            while stream.position < start:
                if not stream.take(min(BLOCK_BYTES, start - stream.position)):
                    raise self._wrong("unfolds to fewer bytes than the directory says")
            done = 0
            while done < len(buffer):
                content = stream.take(min(BLOCK_BYTES, len(buffer) - done))
                if not content:
                    raise self._wrong("unfolds to fewer bytes than the directory says")
                buffer[done : done + len(content)] = content
                done += len(content)
            if stream.position == self.member.nbytes and stream.take(1):
                raise self._wrong("unfolds to more bytes than the directory says")

    def _stream_before(self, start: int) -> _Stream:
        at_most = [one for one in self._streams if one.position <= start]
        stream = max(at_most, key=lambda one: one.position, default=None)
        if stream is None:
            stream = _Stream(self.directory.payload(self.member))
        else:
            self._streams.remove(stream)
        self._streams.append(stream)  # the one used last stands last
        del self._streams[:-MAX_STREAMS]
        return stream

    def _wrong(self, said: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(f"{self.directory.source}: {self.member.name!r} {said}: damaged")


def run_of(directory: ZipDirectory, member: ZipMember) -> StoredMember | DeflatedMember:
    """The bytes of a member by position."""
    return StoredMember(directory, member) if member.method == STORED else DeflatedMember(directory, member)


def read_member(directory: ZipDirectory, name: str, most: int) -> bytes:
    """All bytes of a member; CheckpointError where it has more than `most`, KeyError where there is none such."""
    member = directory.members[name]
    if member.nbytes > most:
        raise CheckpointError(f"{directory.source}: {name!r} has {member.nbytes} bytes, more than {most}: not read")
    content = bytearray(member.nbytes)
    run_of(directory, member).read_into(0, memoryview(content))
    return bytes(content)


def members_of(directory: ZipDirectory) -> tuple[Member, ...]:
    """Every member, as what can be held against its checksum."""
    label = directory.source.label
    return tuple(
        Member(label, one.name, one.nbytes, directory.has_checksums, _Verified(directory, one))
        for one in directory.members.values()
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Verified:
    directory: ZipDirectory
    member: ZipMember

    def __call__(self) -> Defect | None:
        """Read a member in bounded memory; what is wrong with it, None where its checksum holds or there is none."""
        member = self.member
        crc = 0
        try:
            for block in _blocks(run_of(self.directory, member)):
                crc = zlib.crc32(block, crc)
        except DamagedCheckpointError as trouble:
            return Defect(Flaw(trouble.flaw), self.directory.source.label, str(trouble))
        return checksum_defect(self.directory, member, crc)


def checksum_defect(directory: ZipDirectory, member: ZipMember, crc: int) -> Defect | None:
    """What it means that a member's bytes have this CRC-32: None where it is right, or where there is none to hold."""
    if not directory.has_checksums or crc == member.crc:
        return None
    numbers = {"member": member.name, "promised": f"{member.crc:08x}", "found": f"{crc:08x}"}
    said = f"{member.name!r} has CRC-32 {crc:08x}, the archive promises {member.crc:08x}: its bytes have changed"
    return Defect(Flaw.CHECKSUM, directory.source.label, said, numbers)


def _blocks(run: Run) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(BLOCK_BYTES, run.nbytes)))
    for start in range(0, run.nbytes, BLOCK_BYTES):
        block = buffer[: min(BLOCK_BYTES, run.nbytes - start)]
        run.read_into(start, block)
        yield block

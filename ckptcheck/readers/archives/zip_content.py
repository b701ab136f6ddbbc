"""The bytes of a zip's members: stored ones where they lie, deflated ones unfolded from the front as they are read."""

import threading
import zlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.archives.zip_directory import STORED, ZipDirectory, ZipMember
from ckptcheck.readers.source import Source, quoted, said_of
from ckptcheck.readers.tensor_bytes import BLOCK_BYTES, watched
from ckptcheck.state.raw import Defect, Flaw, Member, Watch

MAX_STREAMS: Final = 2
"""Positions in a deflated member from which it can be read on; two threads read two halves."""
MAX_BOMB_BYTES: Final = 256 << 20
MAX_RATIO: Final = 100
"""An archive that unfolds to more than both, the latter times its own size, is made to take time and nothing else."""
MAX_BOOKMARKS: Final = 64
BOOKMARK_BYTES: Final = 1 << 20
"""Least distance of positions that are kept where a member is read from its front again and again."""
_STARTS: Final = 3
"""Positions are kept from this time on that a member is read from its front."""
MAX_UNFOLDED: Final = 256 << 20
WHOLE_TIMES: Final = 3
STORED_TIMES: Final = 128
"""The work that one member may make: bytes to unfold, so many times all of it, so many times its stored bytes."""
_FED_BYTES: Final = 1 << 16
"""Input at once; a bookmark keeps what is left of it."""


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
    """A deflated member being unfolded, at byte `position` of what it unfolds to, `fed` bytes of it read."""

    def __init__(self, source: Source, position: int = 0, fed: int = 0, inflate: Any = None) -> None:
        self.source = source
        self.position = position
        self._fed = fed
        self._inflate: Any = inflate or zlib.decompressobj(-zlib.MAX_WBITS)

    def copy(self) -> "_Stream":
        """Another one at the same position."""
        return _Stream(self.source, self.position, self._fed, self._inflate.copy())

    def take(self, most: int) -> bytes:
        """At most `most` bytes on; none where it has ended. DamagedCheckpointError where it is malformed."""
        while not self._inflate.eof:
            waiting = self._inflate.unconsumed_tail
            if not waiting:
                length = min(_FED_BYTES, self.source.nbytes - self._fed)
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

    In memory are at most `MAX_STREAMS` blocks of input and their windows. Where it is read from its front again and
    again, up to `MAX_BOOKMARKS` positions and the last block are kept; CheckpointError where that does not help.
    """

    directory: ZipDirectory
    member: ZipMember
    _streams: list[_Stream] = field(default_factory=list)
    _bookmarks: dict[int, _Stream] = field(default_factory=dict)
    _last: tuple[int, bytearray] | None = None
    _starts: int = 0
    _unfolded: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def nbytes(self) -> int:
        """The length it unfolds to."""
        return self.member.nbytes

    def home(self) -> tuple[Hashable, int]:
        """What positions count in, and the first one: the bytes that it unfolds to."""
        source = self.directory.source
        return (source.pool, source.path, source.begin, self.member.name), 0

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `start` on. DamagedCheckpointError where it unfolds to fewer or more bytes."""
        if start < 0 or start + len(buffer) > self.member.nbytes:
            raise self._wrong("has too few bytes")
        with self._lock:
            if self._starts < _STARTS:
                self._unfold(start, buffer)
                return
            done = 0
            while done < len(buffer):
                place, skipped = divmod(start + done, BLOCK_BYTES)
                part = self._block(place)[skipped : skipped + len(buffer) - done]
                buffer[done : done + len(part)] = part
                done += len(part)

    def _block(self, place: int) -> bytearray:
        if self._last is None or self._last[0] != place:
            begin = place * BLOCK_BYTES
            content = bytearray(min(BLOCK_BYTES, self.member.nbytes - begin))
            self._unfold(begin, memoryview(content))
            self._last = place, content
        return self._last[1]

    def _unfold(self, start: int, buffer: memoryview) -> None:
        stream = self._stream_before(start)
        while stream.position < start:
            self._take(stream, start - stream.position)
        done = 0
        while done < len(buffer):
            content = self._take(stream, len(buffer) - done)
            buffer[done : done + len(content)] = content
            done += len(content)
        if stream.position == self.member.nbytes and stream.take(1):
            raise self._wrong("unfolds to more bytes than the directory says")

    def _take(self, stream: _Stream, wanted: int) -> bytes:
        content = stream.take(min(BLOCK_BYTES, wanted))
        if not content:
            raise self._wrong("unfolds to fewer bytes than the directory says")
        self._unfolded += len(content)
        member = self.member
        if self._unfolded > MAX_UNFOLDED + WHOLE_TIMES * member.nbytes + STORED_TIMES * member.stored_nbytes:
            raise CheckpointError(
                f"{self.directory.source}: {quoted(member.name)} is compressed, and its tensors are not read in "
                f"the order in which they lie: unpack the archive and pack it again without compression"
            )
        if self._starts >= _STARTS:
            self._keep(stream)
        return content

    def _keep(self, stream: _Stream) -> None:
        stretch = stream.position // max(BOOKMARK_BYTES, self.member.nbytes // MAX_BOOKMARKS)
        if stretch and stretch not in self._bookmarks:
            self._bookmarks[stretch] = stream.copy()

    def _stream_before(self, start: int) -> _Stream:
        at_most = [one for one in (*self._bookmarks.values(), *self._streams) if one.position <= start]
        stream = max(at_most, key=lambda one: one.position, default=None)
        if stream is None:
            stream = _Stream(self.directory.payload(self.member))
            self._starts += 1
        elif stream in self._streams:
            self._streams.remove(stream)
        else:
            stream = stream.copy()
        self._streams.append(stream)  # the one used last stands last
        del self._streams[:-MAX_STREAMS]
        return stream

    def _wrong(self, said: str) -> DamagedCheckpointError:
        return DamagedCheckpointError(f"{self.directory.source}: {quoted(self.member.name)} {said}: damaged")


def check_unfolding(directory: ZipDirectory) -> None:
    """CheckpointError where the members unfold to far more than the archive is long."""
    total = sum(one.nbytes for one in directory.members.values() if one.method != STORED)
    if total > max(MAX_BOMB_BYTES, MAX_RATIO * directory.source.nbytes):
        raise CheckpointError(
            f"{directory.source}: {directory.source.nbytes} bytes unfold to {total}: not read; if it is yours, unpack "
            f"the archive and pack it again without compression"
        )


def run_of(directory: ZipDirectory, member: ZipMember) -> StoredMember | DeflatedMember:
    """The bytes of a member by position."""
    return StoredMember(directory, member) if member.method == STORED else DeflatedMember(directory, member)


def read_member(directory: ZipDirectory, name: str, most: int) -> bytes:
    """All bytes of a member; CheckpointError where it has more than `most`, KeyError where there is none such."""
    member = directory.members[name]
    if member.nbytes > most:
        raise CheckpointError(
            f"{directory.source}: {quoted(name)} has {member.nbytes} bytes, more than {most}: not read"
        )
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

    def __call__(self, watch: Watch | None = None) -> Defect | None:
        """Read a member in bounded memory; what is wrong with it, None where its checksum holds or there is none."""
        member = self.member
        crc = 0
        try:
            for block in watched(run_of(self.directory, member), watch):
                crc = zlib.crc32(block, crc)
        except DamagedCheckpointError as trouble:
            source = self.directory.source
            return Defect(Flaw(trouble.flaw), source.label, said_of(trouble, source.path))
        return checksum_defect(self.directory, member, crc)


def checksum_defect(directory: ZipDirectory, member: ZipMember, crc: int) -> Defect | None:
    """What it means that a member's bytes have this CRC-32: None where it is right, or where there is none to hold."""
    if not directory.has_checksums or crc == member.crc:
        return None
    numbers = {"member": member.name, "promised": f"{member.crc:08x}", "found": f"{crc:08x}"}
    said = f"{quoted(member.name)} has CRC-32 {crc:08x}, the archive promises {member.crc:08x}: its bytes have changed"
    return Defect(Flaw.CHECKSUM, directory.source.label, said, numbers)

"""The directory of a zip archive, read strictly and without touching its members.

The format: PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3 (zip64). The directory alone says where members lie and
how long they are; a member's own header is read when its bytes are wanted. Positions are those of the window that
is read, so that an archive inside another file, or behind a prefix, is read the same.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.source import Source, quoted

MAX_MEMBERS: Final = 1_000_000
MAX_DIRECTORY_BYTES: Final = 256 << 20
MAX_RATIO: Final = 1_040
"""Deflate makes at most 1,032 bytes of one."""
LOCAL_MAGIC: Final = b"PK\x03\x04"
_END_MAGIC: Final = b"PK\x05\x06"
STORED: Final = 0
DEFLATED: Final = 8

_END: Final = struct.Struct("<4s4H2LH")
_END64_LOCATOR: Final = struct.Struct("<4sLQL")
_END64: Final = struct.Struct("<4sQ2H2L4Q")
_ENTRY: Final = struct.Struct("<4s4B4HL2L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_ENCRYPTED: Final = 1
_UTF8: Final = 0x800
_MAX_COMMENT: Final = 0xFFFF


class ZipMember(NamedTuple):
    """A member as the directory says; lengths and positions are in bytes."""

    name: str
    offset: int
    nbytes: int
    stored_nbytes: int
    method: int
    crc: int


@dataclass(frozen=True, slots=True, eq=False)
class ZipDirectory:
    """The members of an archive by name, in the directory's order.

    `limits` are where each ends at the latest, by where it begins: there the next member begins, or the directory.
    `has_checksums` is False where all CRCs are 0. `trailing_nbytes` are behind its end.
    """

    source: Source
    members: Mapping[str, ZipMember]
    limits: Mapping[int, int]
    has_checksums: bool
    trailing_nbytes: int = 0

    def payload(self, member: ZipMember) -> Source:
        """The stretch of the file with a member's stored bytes, compressed or not.

        DamagedCheckpointError where its own header is not one, or where it would reach into the next member.
        """
        limit = self.limits[member.offset]
        found = _LOCAL.unpack(self.source.read(member.offset, _LOCAL.size))
        magic, flags, method, name_length, extra_length = found[0], found[2], found[3], found[9], found[10]
        if magic != LOCAL_MAGIC or method != member.method or flags & _ENCRYPTED:
            raise DamagedCheckpointError(
                f"{self.source}: {quoted(member.name)} does not begin where the directory says: damaged"
            )
        begin = member.offset + _LOCAL.size + name_length + extra_length
        if begin + member.stored_nbytes > limit:
            raise DamagedCheckpointError(f"{self.source}: {quoted(member.name)} reaches into what follows it: damaged")
        return self.source.window(begin, member.stored_nbytes)


def open_zip(source: Source) -> ZipDirectory:
    """Read the directory of the archive that fills `source`; at most 64 KiB may follow it.

    Raises DamagedCheckpointError where there is none or where it does not fit the file, CheckpointError where it is
    encrypted, of several disks, compressed otherwise than by deflate, or beyond our bounds.
    """
    end = _end(source)
    count, begin, nbytes, shift = _located(source, end)
    content = source.read(begin, nbytes)
    entries = _entries(source, content, count, shift)
    members = {one.name: one for one in entries}
    if len(members) != len(entries):
        raise DamagedCheckpointError(f"{source}: two members have one name: damaged, or made to mislead")
    for one in entries:
        if one.method or one.nbytes != one.stored_nbytes:
            _check(source, one)
    has_checksums = any(one.crc for one in members.values()) or not any(one.nbytes for one in members.values())
    return ZipDirectory(source, members, _limits(source, entries, begin), has_checksums, source.nbytes - end.after)


class _EndRecord(NamedTuple):
    """The record at an archive's end: where it begins, where its comment ends, and what it says."""

    begin: int
    after: int
    numbers: tuple[int, ...]


def _end(source: Source) -> _EndRecord:
    """The last end record, one that ends with the file before others; a few bytes behind it are no harm to torch."""
    tail_begin = max(0, source.nbytes - _END.size - _MAX_COMMENT)
    tail = source.read(tail_begin, source.nbytes - tail_begin)
    found: list[_EndRecord] = []
    place = tail.rfind(_END_MAGIC)
    while place >= 0:
        if place + _END.size <= len(tail):
            _, *numbers, comment_length = _END.unpack_from(tail, place)
            after = place + _END.size + comment_length
            found += [_EndRecord(tail_begin + place, tail_begin + after, tuple(numbers))] if after <= len(tail) else []
            if after == len(tail):
                return found[-1]
        place = tail.rfind(_END_MAGIC, 0, place)
    if not found:
        raise DamagedCheckpointError(
            f"{source}: begins as a zip archive and has no directory at its end: cut short, take another copy"
        )
    if tail[found[0].after - tail_begin :].startswith(LOCAL_MAGIC):
        raise DamagedCheckpointError(
            f"{source}: another archive begins at byte {found[0].after} and has no end: cut short"
        )
    return found[0]


def _located(source: Source, record: _EndRecord) -> tuple[int, int, int, int]:
    """Where the directory is: (members, begin, bytes, how far all positions in it are shifted)."""
    disk, first_disk, here, count, nbytes, offset = record.numbers
    end = record.begin
    found = _located64(source, end)
    if found:
        count, nbytes, offset, end = found
    elif disk or first_disk or here != count:
        raise CheckpointError(f"{source}: is one part of a zip archive of several: put them together first")
    begin = end - nbytes
    if begin < offset or nbytes > MAX_DIRECTORY_BYTES or count > MAX_MEMBERS or count * _ENTRY.size > nbytes:
        raise DamagedCheckpointError(
            f"{source}: its directory of {count} members, {nbytes} bytes at {offset} does not fit the file: damaged"
        )
    return count, begin, nbytes, begin - offset


def _located64(source: Source, end: int) -> tuple[int, int, int, int] | None:
    """(members, bytes, offset, end) of the directory by the zip64 record before `end`; None without one."""
    begin = end - _END64_LOCATOR.size - _END64.size
    if begin < 0:
        return None
    content = source.read(begin, _END64_LOCATOR.size + _END64.size)
    if content[_END64.size : _END64.size + 4] != b"PK\x06\x07":
        return None
    magic, _, _, _, _, _, here, count, nbytes, offset = _END64.unpack_from(content)
    if magic != b"PK\x06\x06" or here != count:
        raise DamagedCheckpointError(f"{source}: its zip64 directory record is not where it has to be: damaged")
    return count, nbytes, offset, begin


def _entries(source: Source, content: bytes, count: int, shift: int) -> list[ZipMember]:
    entries: list[ZipMember] = []
    unpack, size = _ENTRY.unpack_from, _ENTRY.size
    place = 0
    try:
        for _ in range(count):
            (magic, _, _, _, _, flags, method, _, _, crc, stored, nbytes,
             name_length, extra_length, comment_length, _, _, _, offset) = unpack(content, place)  # fmt: skip
            name_end = place + size + name_length
            name = content[place + size : name_end].decode("utf-8" if flags & _UTF8 else "cp437")
            if magic != b"PK\x01\x02":
                raise DamagedCheckpointError(f"{source}: entry {len(entries)} of its directory is none: damaged")
            if flags & _ENCRYPTED:
                raise CheckpointError(f"{source}: {quoted(name)} is encrypted: decrypt the archive first")
            if 0xFFFFFFFF in (nbytes, stored, offset):
                extra = content[name_end : name_end + extra_length]
                nbytes, stored, offset = _long_numbers(extra, nbytes, stored, offset)
            entries.append(ZipMember(name, offset + shift, nbytes, stored, method, crc))
            place = name_end + extra_length + comment_length
    except (struct.error, UnicodeDecodeError):
        raise DamagedCheckpointError(f"{source}: entry {len(entries)} of its directory is malformed: damaged") from None
    if place != len(content):
        raise DamagedCheckpointError(
            f"{source}: its directory has {len(content)} bytes, its entries take {place}: damaged"
        )
    return entries


def _long_numbers(extra: bytes, *short: int) -> list[int]:
    """Numbers that do not fit 32 bits, from the extra field of zip64; struct.error where they are missing."""
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        if kind == 1:
            longs = list(struct.unpack_from(f"<{length // 8}Q", extra, place + 4))
            if len(longs) < sum(one == 0xFFFFFFFF for one in short):
                break
            return [longs.pop(0) if one == 0xFFFFFFFF else one for one in short]
        place += 4 + length
    raise struct.error


def _limits(source: Source, entries: list[ZipMember], end: int) -> dict[int, int]:
    """From where a member begins to where the next does; DamagedCheckpointError where two overlap."""
    limits: dict[int, int] = {}
    limit = end
    for offset, stored in sorted([(one.offset, one.stored_nbytes) for one in entries], reverse=True):
        if offset + _LOCAL.size + stored > limit:
            raise DamagedCheckpointError(
                f"{source}: the member at byte {offset} overlaps what follows it, or ends outside: damaged"
            )
        limits[offset] = limit
        limit = offset
    return limits


def _check(source: Source, member: ZipMember) -> None:
    """Raise where a member's lengths or method cannot be."""
    name, _, nbytes, stored, method, _ = member
    if method == DEFLATED and nbytes > stored * MAX_RATIO + MAX_RATIO:
        raise CheckpointError(f"{source}: {quoted(name)} would unfold to {nbytes} bytes: made to mislead, not read")
    if method == STORED and nbytes != stored:
        raise DamagedCheckpointError(f"{source}: {quoted(name)} has {stored} bytes, not the promised {nbytes}: damaged")
    if method not in (STORED, DEFLATED):
        raise CheckpointError(f"{source}: {quoted(name)} is compressed by method {method}: only deflate is read")

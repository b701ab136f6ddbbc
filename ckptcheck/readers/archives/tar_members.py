"""The members of an uncompressed tar: ustar, GNU and pax headers, 512 bytes each, every one with its own sum.

https://www.gnu.org/software/tar/manual/html_node/Standard.html. The bytes of a member carry no checksum.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.source import Source

BLOCK_BYTES: Final = 512
MAX_MEMBERS: Final = 100_000
MAX_NAME_BYTES: Final = 64 * 1024
"""Of a long name or of a member's extended headers."""

_REGULAR: Final = b"0\0"
_LONG_NAME: Final = b"L"
_PAX: Final = b"x"
_ZEROS: Final = b"\0" * BLOCK_BYTES
_OCTAL: Final = re.compile(rb"[ \0]*([0-7]*)[ \0]*")
_RECORD: Final = re.compile(rb"(\d{1,6}) ([^=]+)=")


@dataclass(frozen=True, slots=True)
class TarMember:
    """A regular file in a tar: its bytes from `begin` of the tar on."""

    name: str
    begin: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class TarListing:
    """The regular files of a tar in order; `has_end` is False where the tar stops without its end mark."""

    members: tuple[TarMember, ...]
    has_end: bool


def is_tar(start: bytes) -> bool:
    """Whether the first bytes are a tar's header: its magic, and the sum that it has over itself."""
    return len(start) >= BLOCK_BYTES and start[257:262] == b"ustar" and _sum_fits(start[:BLOCK_BYTES])


def list_tar(source: Source) -> TarListing:
    """The regular files of a tar. DamagedCheckpointError where a header or a member's length does not fit."""
    found: list[TarMember] = []
    position, overriding = 0, TarMember("", 0, -1)
    for _ in range(MAX_MEMBERS):
        if source.nbytes - position < BLOCK_BYTES:
            return TarListing(tuple(found), has_end=False)
        header = source.read(position, BLOCK_BYTES)
        if header == _ZEROS:
            return TarListing(tuple(found), has_end=True)
        member, kind = _member(source, header, position)
        if kind in (_LONG_NAME, _PAX):
            overriding = _override(source, member, kind, overriding)
        else:
            if overriding.nbytes >= 0:
                member = replace(member, nbytes=overriding.nbytes)
            if overriding.name:
                member = replace(member, name=overriding.name)
            overriding = TarMember("", 0, -1)
            if kind in _REGULAR:
                source.window(member.begin, member.nbytes)  # it is there
                found.append(member)
        position = member.begin + -(-member.nbytes // BLOCK_BYTES) * BLOCK_BYTES
    raise CheckpointError(f"{source}: a tar of more than {MAX_MEMBERS} members: not read")


def _member(source: Source, header: bytes, position: int) -> tuple[TarMember, bytes]:
    if not _sum_fits(header):
        raise DamagedCheckpointError(f"{source}: the tar header at byte {position} does not have its own sum")
    size = _number(header[124:136])
    if size is None:
        raise DamagedCheckpointError(f"{source}: the tar header at byte {position} has no size")
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return TarMember(f"{prefix}/{name}" if prefix else name, position + BLOCK_BYTES, size), header[156:157]


def _override(source: Source, member: TarMember, kind: bytes, before: TarMember) -> TarMember:
    """What a header for the next one says of it."""
    if member.nbytes > MAX_NAME_BYTES:
        raise DamagedCheckpointError(f"{source}: a name of {member.nbytes} bytes in a tar: not read")
    content = source.read(member.begin, member.nbytes)
    if kind == _LONG_NAME:
        return replace(before, name=_text(content))
    for key, value in _records(content):
        if key == b"path":
            before = replace(before, name=value.decode("utf-8", "replace"))
        elif key == b"size" and value.isdigit() and len(value) < 20:
            before = replace(before, nbytes=int(value))
    return before


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Pax records, each "LENGTH KEY=VALUE" and a newline, the length counting all of it."""
    position = 0
    while match := _RECORD.match(content, position):
        end = position + int(match[1])
        if end <= match.end():
            return
        yield match[2], content[match.end() : end - 1]
        position = end


def _number(field: bytes) -> int | None:
    if field[0] == 0x80:  # GNU: binary, for what has no place in octal
        number = int.from_bytes(field[1:], "big")
        return number if number < 2**62 else None
    match = _OCTAL.fullmatch(field)
    return int(match[1] or b"0", 8) if match else None


def _sum_fits(header: bytes) -> bool:
    told = _number(header[148:156])
    return told == sum(header) - sum(header[148:156]) + 8 * ord(" ")


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")

"""Bytes that lie in no file as they are read, kept in memory and read like a file's: a decompressed archive."""

import zlib
from pathlib import Path
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.readers.source import FilePool, Source
from ckptcheck.state.raw import Flaw

MAX_INFLATED_BYTES: Final = 256 * 2**20
"""Memory that one compressed archive may take."""
READ_BYTES: Final = 1 << 18
_GZIP: Final = 16 + zlib.MAX_WBITS


class HeldPool(FilePool):
    """One file's content in memory in place of what lies at its path; all else is the outer pool's."""

    def __init__(self, outer: FilePool, path: Path, content: bytearray) -> None:
        super().__init__()
        self._outer = outer
        self._path = path
        self._content = memoryview(content).toreadonly()

    def read_into(self, path: Path, position: int, buffer: memoryview) -> int:
        """As `FilePool.read_into`."""
        if path != self._path:
            return self._outer.read_into(path, position, buffer)
        part = self._content[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def check_unchanged(self) -> None:
        """As `FilePool.check_unchanged`."""
        self._outer.check_unchanged()


def held(source: Source, content: bytearray, label: str) -> Source:
    """`content` as a source of its own, in place of `source`, whose path it keeps for what is said of it."""
    return Source(HeldPool(source.pool, source.path, content), source.path, label, 0, len(content))


def gunzip(source: Source) -> bytearray:
    """The content of a gzip file.

    Raises CheckpointError where it is longer than `MAX_INFLATED_BYTES`, DamagedCheckpointError where it is cut short
    or its checksum does not hold.
    """
    inflate = zlib.decompressobj(_GZIP)
    content = bytearray()
    for start in range(0, source.nbytes, READ_BYTES):
        waiting = source.read(start, min(READ_BYTES, source.nbytes - start))
        while waiting and not inflate.eof:
            try:
                content += inflate.decompress(waiting, READ_BYTES)
            except zlib.error as trouble:
                flaw = Flaw.CHECKSUM if "check" in str(trouble) else Flaw.UNREADABLE
                raise DamagedCheckpointError(f"{source}: does not decompress ({trouble})", flaw) from None
            waiting = inflate.unconsumed_tail
            if len(content) > MAX_INFLATED_BYTES:
                raise CheckpointError(
                    f"{source}: decompresses to more than {MAX_INFLATED_BYTES} bytes: name the decompressed file"
                )
    if not inflate.eof:
        raise DamagedCheckpointError(f"{source}: the compressed data ends early: cut short")
    return content


def inflated_start(start: bytes, length: int) -> bytes:
    """The first bytes of a gzip file's content as far as its own first bytes tell; b"" for what is none."""
    try:
        return zlib.decompressobj(_GZIP).decompress(start, length)
    except zlib.error:
        return b""

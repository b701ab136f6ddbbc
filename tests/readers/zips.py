"""Zip archives written by Python's zipfile, opened by ours, and their bytes changed by hand."""

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ckptcheck.readers.archives.zip_directory import ZipDirectory, open_zip
from ckptcheck.readers.source import FilePool, Source


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    """An archive with these members."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)  # of 1980, whenever it is written
        archive.comment = comment
    return buffer.getvalue()


def source_of(folder: Path, content: bytes) -> Source:
    """A file with this content."""
    path = folder / "archive.zip"
    path.write_bytes(content)
    return FilePool().open(path)


def opened(folder: Path, content: bytes) -> ZipDirectory:
    """The directory of a file with this content."""
    return open_zip(source_of(folder, content))


def entry_of(content: bytes, name: str) -> int:
    """Where the directory's entry of a member begins."""
    place = content.index(b"PK\x01\x02")
    while not content.startswith(name.encode(), place + 46):
        place = content.index(b"PK\x01\x02", place + 1)
    return place


def patched(content: bytes, place: int, code: str, value: int) -> bytes:
    """The content with a little-endian number at `place`."""
    changed = bytearray(content)
    struct.pack_into("<" + code, changed, place, value)
    return bytes(changed)

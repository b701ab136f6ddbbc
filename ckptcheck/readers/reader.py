"""What a reader is: it claims files or folders by their content, and reads their description."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ckptcheck.readers.source import Source
from ckptcheck.state.raw import RawTree

if TYPE_CHECKING:
    from ckptcheck.readers.reading import Reading

HEAD_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Head:
    """What a file begins with: its first `HEAD_BYTES` bytes, fewer where there are fewer."""

    source: Source
    start: bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder: its regular files by path relative to it (with "/"), and the direct sub-folders by name."""

    path: Path
    files: Mapping[str, Path]
    folders: Mapping[str, Path]


class FileReader(Protocol):
    """Reads files of one format."""

    def claims(self, head: Head) -> bool:
        """Whether the content is of this format, told by bytes and never by the name; must not raise for any bytes."""
        ...

    def read(self, source: Source, reading: "Reading") -> RawTree:
        """Describe the file.

        Raises DamagedCheckpointError where bytes do not fit each other, CheckpointError where it is refused.
        """
        ...


class FolderReader(Protocol):
    """Reads folders of one layout."""

    def claims(self, listing: Listing) -> bool:
        """Whether the folder is of this layout, told by the names and contents of its files."""
        ...

    def read(self, listing: Listing, reading: "Reading") -> RawTree:
        """Describe the folder; files of their own are read by `reading.file`. Errors as a `FileReader`'s."""
        ...

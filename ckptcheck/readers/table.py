"""Every reader. A file or folder belongs to the first that claims it by its content."""

from typing import Final

from ckptcheck.readers.reader import FileReader, FolderReader

FILE_READERS: Final[tuple[FileReader, ...]] = ()

FOLDER_READERS: Final[tuple[FolderReader, ...]] = ()

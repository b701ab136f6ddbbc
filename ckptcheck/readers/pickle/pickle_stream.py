"""Pickles that lie back to back in a file, with or without other bytes between them."""

from typing import Final

from ckptcheck.errors import DamagedCheckpointError
from ckptcheck.readers.pickle.pickle_machine import Persistent
from ckptcheck.readers.pickle.pickles import Pickled, read_pickle
from ckptcheck.readers.source import Source

FIRST_BYTES: Final = 1 << 12
MAX_STREAM_BYTES: Final = 1 << 27
"""The longest pickle that is read where nothing says how long it is."""
_GROWTH: Final = 8


class PickleStream:
    """Reads pickles and numbers from `position` on. `where` begins each message."""

    def __init__(self, source: Source, where: str) -> None:
        self.source = source
        self.where = where
        self.position = 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return self.source.nbytes - self.position

    def pickle(self, persistent: Persistent | None = None) -> Pickled:
        """The next pickle. A pickle does not say how long it is: more is read until it ends; errors as `read_pickle`.

        `persistent` may be asked for one id several times.
        """
        length = FIRST_BYTES
        while True:
            held = min(length, self.left, MAX_STREAM_BYTES)
            data = self.source.read(self.position, held)
            try:
                found = read_pickle(data, where=self.where, file=self.source.label, persistent=persistent)
            except DamagedCheckpointError:
                if held == min(self.left, MAX_STREAM_BYTES):
                    raise
                length *= _GROWTH
            else:
                self.position += found.end
                return found

    def integer(self, nbytes: int, byteorder: str) -> int:
        """The next signed integer of that many bytes."""
        content = self.source.read(self.position, nbytes)
        self.position += nbytes
        return int.from_bytes(content, "big" if byteorder == "big" else "little", signed=True)

    def window(self, nbytes: int) -> Source:
        """The next bytes as a window. DamagedCheckpointError where there are fewer."""
        window = self.source.window(self.position, nbytes)
        self.position += nbytes
        return window

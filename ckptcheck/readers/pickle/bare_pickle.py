"""A file that is one pickle and nothing else: replay buffers, states of generators, arguments."""

import re
from typing import Final

from ckptcheck.errors import CheckpointError
from ckptcheck.readers.folders.folder_files import legacy_bytes_changed
from ckptcheck.readers.pickle.pickles import read_pickle
from ckptcheck.readers.reach import check_reach
from ckptcheck.readers.reader import Head
from ckptcheck.readers.reading import Reading
from ckptcheck.readers.source import Source
from ckptcheck.state.raw import Named, RawTree

MAX_BARE_BYTES: Final = 1 << 28
"""A pickle is held in memory, arrays and all, while it is read."""
MAX_TEXT_BYTES: Final = 1 << 24
"""Of a pickle of protocol 0 or 1, which has no magic and is read to see whether it is one."""

_BINARY: Final = re.compile(rb"\x80(?:[\x02\x03][\]}()cXKJMGNUCBT\x88\x89\x8a\x8c\x8e]|[\x04\x05]\x95)")
_TEXT: Final = re.compile(rb"[(\]})]|c[A-Za-z_][\w.]*\n[A-Za-z_]")


class BarePickle:
    """One pickle of protocol 0 to 5; container "pickle"."""

    def claims(self, head: Head) -> bool:
        """A protocol mark and an opcode; without a mark, the whole file has to be a pickle of more than a word."""
        if _BINARY.match(head.start):
            return not legacy_bytes_changed(head.start)
        source = head.source
        if not _TEXT.match(head.start) or source.nbytes > MAX_TEXT_BYTES:
            return False
        try:
            content = source.read(0, source.nbytes)
            if content[-1:] != b".":
                return False
            found = read_pickle(content, where=str(source))
        except CheckpointError:
            return False
        return found.end == len(content) and not isinstance(found.value, Named | str | int | float | None)

    def read(self, source: Source, reading: Reading) -> RawTree:
        """Its value. DamagedCheckpointError where it is cut short, CheckpointError where more follows it."""
        if source.nbytes > MAX_BARE_BYTES:
            raise CheckpointError(
                f"{source}: a pickle of {source.nbytes} bytes, more than {MAX_BARE_BYTES} are not read into memory"
            )
        pickled = read_pickle(source.read(0, source.nbytes), where=str(source), file=source.label)
        if pickled.end < source.nbytes:
            raise CheckpointError(
                f"{source}: {source.nbytes - pickled.end} bytes follow its pickle: a file of several parts is not read"
            )
        check_reach(pickled.tensor_bytes, source.nbytes, source)
        return RawTree(
            path=reading.path,
            container="pickle",
            root=pickled.value,
            nbytes=source.nbytes,
            globals=pickled.globals,
            facts={"checksums": "none", "protocol": pickled.protocol},
            check_unchanged=reading.pool.check_unchanged,
        )

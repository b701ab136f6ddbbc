"""The stored bytes of a checkpoint, held against their checksums."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.progress import Progress
from ckptcheck.state.raw import Defect, Flaw, Member, RawTree

THREADS: Final = 2
"""Members that are verified at once; checksums and reads release the interpreter's lock."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What verifying the members of a checkpoint found; bytes are counted where a checksum was held against them."""

    defects: tuple[Defect, ...] = ()
    nbytes: int = 0


def verify_members(raw: RawTree, progress: Progress | None = None) -> Verified:
    """Hold every member against its checksum, two at a time; defects come in the order of the file."""
    tally = _Tally(str(raw.path), sum(member.nbytes for member in raw.members), progress)

    def verify(member: Member) -> Defect | None:
        try:
            defect = member.verify()
        except DamagedCheckpointError as trouble:
            defect = Defect(Flaw(trouble.flaw), member.file, str(trouble))
        except CheckpointError as trouble:
            defect = Defect(Flaw.UNREADABLE, member.file, str(trouble))
        tally.add(member)
        return defect

    pool = ThreadPoolExecutor(THREADS)
    try:
        defects = [defect for defect in pool.map(verify, raw.members) if defect is not None]
    finally:
        pool.shutdown(cancel_futures=True)
    return Verified(tuple(defects), tally.verified)


class _Tally:
    """Counts bytes from several threads and tells of them."""

    def __init__(self, name: str, total: int, progress: Progress | None) -> None:
        self.verified = 0
        self._name, self._total, self._progress = name, total, progress
        self._read = 0
        self._lock = threading.Lock()

    def add(self, member: Member) -> None:
        with self._lock:
            self._read += member.nbytes
            self.verified += member.nbytes if member.has_checksum else 0
            if self._progress is not None:
                self._progress.update(self._name, "MiB verified", self._read >> 20, self._total >> 20)

"""The stored bytes of a checkpoint, held against their checksums, and shown on the way to whoever counts them."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.progress import Progress
from ckptcheck.state.raw import Defect, Flaw, Member, RawTree, Watch

if TYPE_CHECKING:
    from ckptcheck.comparison.surveying import Surveyor

THREADS: Final = 2
"""Members that are verified at once; checksums and reads release the interpreter's lock."""


SMALL_BYTES: Final = 64 << 10
"""Where the average member is smaller, threads would only wait for each other's turn with the interpreter."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What verifying the members of a checkpoint found; bytes are counted where a checksum was held against them."""

    defects: tuple[Defect, ...] = ()
    nbytes: int = 0


def verify_members(raw: RawTree, progress: Progress | None = None, surveyor: "Surveyor | None" = None) -> Verified:
    """Hold every member against its checksum, two at a time; defects come in the order of the file.

    A surveyor sees the same bytes.
    """
    tally = _Tally(str(raw.path), sum(member.nbytes for member in raw.members), progress)

    def verify(member: Member) -> Defect | None:
        sight = surveyor.begin() if surveyor is not None else None
        defect = _verified(member, sight)
        if surveyor is not None and sight is not None:
            surveyor.end(sight, defect)
        tally.add(member)
        return defect

    found = _each(verify, raw.members)
    return Verified(tuple(defect for defect in found if defect is not None), tally.verified)


def _each(verify: Callable[[Member], Defect | None], members: Sequence[Member]) -> list[Defect | None]:
    if sum(one.nbytes for one in members) < SMALL_BYTES * len(members):
        return [verify(one) for one in members]
    pool = ThreadPoolExecutor(THREADS)
    try:
        return list(pool.map(verify, members))
    finally:
        pool.shutdown(cancel_futures=True)


def _verified(member: Member, watch: Watch | None) -> Defect | None:
    try:
        return member.verify(watch) if watch is not None else member.verify()
    except DamagedCheckpointError as trouble:
        return Defect(Flaw(trouble.flaw), member.file, str(trouble))
    except CheckpointError as trouble:
        return Defect(Flaw.UNREADABLE, member.file, str(trouble))


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

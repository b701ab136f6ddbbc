"""One checkpoint's files, verified and judged."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.finding import FAIL_ON, Compared, Finding, Json, NotJudged, Result, Verdict
from ckptcheck.progress import Progress
from ckptcheck.state.raw import Defect, Flaw, Member, RawTree
from ckptcheck.verdict.inspection import globals_part

THREADS: Final = 2
"""Members that are verified at once; checksums and reads release the interpreter's lock."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What verifying the members of a checkpoint found; bytes are counted where a checksum was held against them."""

    defects: tuple[Defect, ...] = ()
    nbytes: int = 0


def check_files(
    path: Path, select: Sequence[str], ignore: Sequence[str], fail_on: str, progress: Progress | None = None
) -> Result:
    """Verify every checksum in the checkpoint at `path` and judge its files.

    A damaged checkpoint is a finding. Raises CheckpointError where `path` is absent or no checkpoint that we read,
    and DamagedCheckpointError where a file changes meanwhile.
    """
    from ckptcheck.readers.reading import read_raw
    from ckptcheck.rules.files import judge_files

    raw, trouble = None, None
    try:
        raw = read_raw(path, strict=False)
    except DamagedCheckpointError as error:
        trouble = error
    verified = verify_members(raw, progress) if raw is not None else Verified()
    if raw is not None:
        raw.check_unchanged()
    findings, not_judged = judge_files(raw, trouble, verified.defects, select, ignore)
    return Result(
        command="check",
        verdict=_verdict(raw, findings, _some_rule_judged(not_judged, select, ignore), fail_on),
        compared=Compared(bytes=verified.nbytes),
        findings=findings,
        not_judged=not_judged,
        parts={
            "path": str(path),
            "layout": {"container": raw.container, "convention": None} if raw is not None else None,
            "files": files_part(raw) if raw is not None else [],
            "globals": globals_part(raw) if raw is not None else [],
        },
    )


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


def files_part(raw: RawTree) -> list[Json]:
    """One row a file: its size, its container and whether its bytes carry checksums; slices of DCP are one row."""
    carries: dict[str, list[Member]] = {}
    for member in raw.members:
        carries.setdefault(member.file, []).append(member)
    trees = {"": raw} if not raw.files or raw.container == "dcp" else raw.files
    return [
        {
            "path": path,
            "bytes": tree.nbytes,
            "container": tree.container,
            "checksums": _said([one.has_checksum for one in carries.get(path) or tree.members if one.nbytes]),
        }
        for path, tree in trees.items()
    ]


def _said(carries: Sequence[bool]) -> str:
    if not any(carries):
        return "off"
    return "on" if all(carries) else "in part"


def _some_rule_judged(not_judged: Sequence[NotJudged], select: Sequence[str], ignore: Sequence[str]) -> bool:
    from ckptcheck.rules.files import RULES
    from ckptcheck.rules.rule import chosen

    return not {one.code for one in chosen(RULES, select, ignore)} <= {one.code for one in not_judged}


def _verdict(raw: RawTree | None, findings: Sequence[Finding], judged: bool, fail_on: str) -> Verdict:
    """Fail by severity; a pass needs a checkpoint that could be read, and a rule that looked at it."""
    if any(finding.severity in FAIL_ON[fail_on] for finding in findings):
        return Verdict.FAIL
    return Verdict.PASS if raw is not None and judged else Verdict.INCONCLUSIVE

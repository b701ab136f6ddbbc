"""One checkpoint's files, verified and judged."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

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
    convention, defects = _explained(raw) if raw is not None else (None, ())
    if raw is not None:
        raw.check_unchanged()
    findings, not_judged = judge_files(raw, trouble, (*verified.defects, *defects), select, ignore)
    return Result(
        command="check",
        verdict=_verdict(raw, findings, _some_rule_judged(not_judged, select, ignore), fail_on),
        compared=Compared(bytes=verified.nbytes),
        findings=findings,
        not_judged=not_judged,
        parts={
            "path": str(raw.path) if raw is not None else str(path),
            "chosen": _chosen(raw) if raw is not None else None,
            "layout": {"container": raw.layout, "convention": convention} if raw is not None else None,
            "files": files_part(raw) if raw is not None else [],
            "globals": globals_part(raw) if raw is not None else [],
        },
    )


def _chosen(raw: RawTree) -> dict[str, Json] | None:
    """Why this checkpoint of a run, of how many, and which newer ones are not whole; None where it was named."""
    if "chosen" not in raw.facts:
        return None
    return {
        "reason": raw.facts["reason"],
        "of": raw.facts["of"],
        "skipped": [*raw.facts.get("skipped", ())],
    }


def _explained(raw: RawTree) -> tuple[str | None, tuple[Defect, ...]]:
    """Who wrote it, and where its parts do not fit each other: where it has defects, that is no news."""
    from ckptcheck.conventions.explaining import explain

    try:
        return explain(raw).convention, ()
    except DamagedCheckpointError as trouble:
        if raw.defects:
            return None, ()
        return None, (Defect(Flaw(trouble.flaw), "", str(trouble).removeprefix(f"{raw.path}: ")),)


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
    """One row a file: its size, its container and whether its bytes carry checksums."""
    trailing = dict(_trailing(raw))
    carries: dict[str, list[Member]] = {}
    for member in raw.members:
        carries.setdefault(member.file, []).append(member)
    return [
        {
            "path": path,
            "bytes": nbytes,
            "container": container,
            "checksums": _said([one.has_checksum for one in carries.get(path) or members if one.nbytes]),
            **({"trailing_bytes": trailing[path]} if trailing.get(path) else {}),
        }
        for path, nbytes, container, members in _files(raw, "")
    ]


def _trailing(tree: RawTree, path: str = "") -> Iterator[tuple[str, int]]:
    """Of each file that says so, how many bytes are behind its end."""
    yield path, tree.facts.get("trailing_bytes", 0)
    for label, inner in tree.files.items():
        yield from _trailing(inner, label)


_File: TypeAlias = tuple[str, int, str, Sequence[Member]]


def _files(tree: RawTree, path: str) -> Iterator[_File]:
    """Path, bytes, container and members of each file: those of an archive within are one, slices of DCP are not."""
    if tree.container == "dcp":
        slices: dict[str, list[Member]] = {}
        for member in tree.members:
            slices.setdefault(member.file, []).append(member)
        for file, held in slices.items():
            if file not in tree.files:
                yield file, sum(one.nbytes for one in held), "dcp", held
    is_one_file = not tree.files or (path and tree.container in ("zip", "tar"))
    if is_one_file and tree.container != "dcp":
        yield path, tree.nbytes, tree.container, tree.members
        return
    for label, inner in tree.files.items():
        yield from _files(inner, label)


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

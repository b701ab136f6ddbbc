"""The checkpoints of one run in a row: whether each is a later one of the same training."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from ckptcheck.comparison.series import Described, Stale, describe, stale_moments
from ckptcheck.comparison.series_parts import Same, same_parts
from ckptcheck.conventions.explaining import explain
from ckptcheck.errors import CheckpointError, DamagedCheckpointError
from ckptcheck.finding import Json
from ckptcheck.progress import Progress
from ckptcheck.readers.folders.run_members import RunMember, members_beside
from ckptcheck.readers.reading import read_raw
from ckptcheck.rules.rule import chosen, judged
from ckptcheck.rules.series.series import WHY_NOT, Member, Series
from ckptcheck.rules.series.table import SERIES_RULES
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Defect, Flaw, RawTree
from ckptcheck.verdict.check_question import CheckQuestion, Said

MAX_READ: Final = 12
"""The newest checkpoints of a run that are described."""
MAX_COMPARED: Final = 4
"""The newest ones whose moments are compared with each other, each with the one before it."""


def judge_series(path: Path, raw: RawTree, question: CheckQuestion, progress: Progress | None = None) -> Said:
    """What the checkpoints beside the one that was chosen say; nothing where `path` names one checkpoint."""
    if "chosen" not in raw.facts:
        return Said()
    folder, found = members_beside(raw.path, path)
    if len(found) < 2:
        return Said()
    recent = found[-MAX_READ:]
    members: list[Member] = []
    read: dict[str, Checkpoint] = {}
    for place, one in enumerate(recent):
        if progress is not None:
            progress.update(str(folder), "checkpoints", place, len(recent))
        member, checkpoint = _member(one, raw)
        members.append(member)
        if checkpoint is not None and place >= len(recent) - MAX_COMPARED:
            read[one.name] = checkpoint
    passed_over = {name: why for name, _, why in (one.partition(": ") for one in raw.facts.get("skipped", ()))}
    series = Series(folder, tuple(members), len(found) - len(recent), _tracker(raw), passed_over=passed_over)
    stale, why_not = _stale(series, read)
    series = replace(series, stale=stale or None, not_compared=why_not, same=_same(series, read))
    rules = chosen(SERIES_RULES, question.select, question.ignore)
    findings, not_judged = judged(rules, series, WHY_NOT)
    return Said(findings, not_judged, _parts(series), frozenset(one.code for one in rules))


def _tracker(raw: RawTree) -> str:
    """The file that names the chosen checkpoint, "" where its number chose it."""
    reason = str(raw.facts.get("reason", ""))
    return reason.removeprefix("named by ") if reason.startswith("named by ") else ""


def _member(one: RunMember, raw: RawTree) -> tuple[Member, Checkpoint | None]:
    """One checkpoint, described; the chosen one has been read already."""
    is_chosen = raw.path.is_relative_to(one.path)
    checkpoint, described = None, None
    defects: tuple[Defect, ...] = ()
    refused = ""
    try:
        tree = raw if is_chosen else read_raw(one.path, strict=False)
        defects = tree.defects
        checkpoint = explain(tree)
        described = describe(checkpoint)
    except DamagedCheckpointError as trouble:
        if not defects:
            defects = (Defect(Flaw(trouble.flaw), "", str(trouble).removeprefix(f"{one.path}: ")),)
    except CheckpointError as trouble:
        refused = str(trouble).removeprefix(f"{one.path}: ")
    return Member(one.name, one.number, one.written_s, is_chosen, described, defects, refused), checkpoint


def _stale(series: Series, read: Mapping[str, Checkpoint]) -> tuple[dict[tuple[str, str], Stale], str]:
    """What the moments of the newest successive checkpoints say, and why others were not compared."""
    pairs = [
        (one[0].name, other[0].name)
        for run in series.runs
        for one, other in pairwise(run)
        if one[1].with_optimizer and other[1].with_optimizer
    ]
    compared = [pair for pair in pairs if all(name in read for name in pair)]
    found: dict[tuple[str, str], Stale] = {}
    for left, right in compared:
        try:
            stale = stale_moments(read[left], read[right])
        except CheckpointError:
            continue  # it is told as damaged
        if stale is not None:
            found[left, right] = stale
    older = len(pairs) - len(compared)
    pair = "pair" if older == 1 else "pairs"
    return found, f"the moments of {older} older {pair} of checkpoints were not compared" if older else ""


def _same(series: Series, read: Mapping[str, Checkpoint]) -> dict[tuple[str, str], Same]:
    """Which parts of the newest checkpoints are those of an earlier one that was read, the nearest."""
    found: dict[tuple[str, str], Same] = {}
    for run in series.runs:
        held = [(one.name, told) for one, told in run if one.name in read]
        for place, (right, after) in enumerate(held):
            for left, before in reversed(held[:place]):
                if not _is_later(before, after):
                    continue
                try:
                    same = same_parts(read[left], read[right])
                except CheckpointError:
                    continue  # it is told as damaged
                if same is not None:
                    found[left, right] = same
                    break
    return found


def _is_later(before: Described, after: Described) -> bool:
    """Whether steps lie between two checkpoints, as they record them or as their optimizers count."""
    steps, updates = (before.step, after.step), (before.most_updates, after.most_updates)
    return any(one[0] is not None and one[1] is not None and one[0] < one[1] for one in (steps, updates))


def _parts(series: Series) -> dict[str, Json]:
    """A row a checkpoint that was looked at, and how many older ones were not."""
    rows: list[Json] = [_row(one, series.folder) for one in series.members]
    return {"series": rows, "older_not_read": series.left_out}


def _row(one: Member, folder: Path) -> Json:
    told = one.described
    return {
        "path": str(folder / one.name),
        "step": told.step if told is not None else None,
        "counters": _counters(told),
        "parameters": len(told.parameters) if told is not None else None,
        "bytes": told.nbytes if told is not None else None,
        "checked": one.chosen,
        "damage": [defect.said for defect in one.defects],
        "not_read": one.refused or None,
    }


def _counters(told: Described | None) -> Json:
    if told is None:
        return {}
    found: dict[str, Json] = {"updates": told.most_updates, "schedule": told.schedule}
    return {key: value for key, value in found.items() if value is not None}

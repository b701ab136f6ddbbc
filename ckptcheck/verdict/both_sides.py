"""Each of two checkpoints by itself: its files and its numbers, from one read of its bytes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ckptcheck.finding import Finding, NotJudged
from ckptcheck.progress import Progress
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTree
from ckptcheck.verdict.reading_through import read_through

if TYPE_CHECKING:
    from ckptcheck.comparison.survey import Survey

NUMBERS: Final = ("CK501", "CK502", "CK503", "CK504", "CK506")
"""Rules over the numbers of one checkpoint. How counters fit (CK505) the pair tells better."""
ON_BOTH: Final = "; also in the left checkpoint"


@dataclass(frozen=True, slots=True)
class Side:
    """What is said of one checkpoint alone: of its files, of its numbers, and what its tensors hold."""

    files: tuple[Finding, ...]
    numbers: tuple[Finding, ...]
    not_judged: tuple[NotJudged, ...]
    survey: "Survey | None"


def judge_side(
    name: str, checkpoint: Checkpoint, select: Sequence[str], ignore: Sequence[str], progress: Progress | None
) -> Side:
    """Judge the left or right checkpoint by itself. Places and reasons name the side."""
    from ckptcheck.rules.files import judge_files

    raw = checkpoint.raw
    verified, survey = read_through(raw, checkpoint, progress)
    findings, lacking = judge_files(raw, None, verified.defects, select, ignore)
    numbers, unread = _numbers(checkpoint, survey, select, ignore)
    said = (NotJudged(one.code, f"{name}: {one.reason}") for one in (*lacking, *unread))
    return Side(_placed(raw, findings), _placed(raw, numbers), tuple(said), survey)


def told_once(left: Iterable[Finding], right: Iterable[Finding]) -> list[Finding]:
    """Findings about numbers of both sides; what both have alike is said of the right one."""
    ours, theirs = {_content(one): one for one in left}, {_content(one): one for one in right}
    only_left = [one for content, one in ours.items() if content not in theirs]
    return only_left + [
        replace(one, message=one.message + ON_BOTH) if content in ours else one for content, one in theirs.items()
    ]


def _numbers(
    checkpoint: Checkpoint, survey: "Survey | None", select: Sequence[str], ignore: Sequence[str]
) -> tuple[list[Finding], list[NotJudged]]:
    from ckptcheck.optimizers.guessing import guess
    from ckptcheck.rules.rule import chosen, judged
    from ckptcheck.rules.stored import numbers
    from ckptcheck.rules.stored.stored import WHY_NOT, Stored

    classes = tuple(guess(one) for one in checkpoint.state.optimizers)
    stored = Stored(checkpoint, classes=classes, survey=survey)
    rules = [one for one in chosen(numbers.RULES, select, ignore) if one.code in NUMBERS]
    return judged(rules, stored, WHY_NOT)


def _placed(raw: RawTree, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(replace(one, where=replace(one.where, path=_path(raw, one.where.path))) for one in findings)


def _path(raw: RawTree, file: str | None) -> str:
    return str(raw.path / file) if file else str(raw.path)


def _content(one: Finding) -> tuple[object, ...]:
    """What makes two findings the same but for the side that they are about."""
    return one.code, one.message, replace(one.where, path=None)

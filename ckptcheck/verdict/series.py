"""The checkpoints of one run in a row: whether each is a later one of the same training."""

from pathlib import Path

from ckptcheck.progress import Progress
from ckptcheck.state.raw import RawTree
from ckptcheck.verdict.check_question import CheckQuestion, Said


def judge_series(path: Path, raw: RawTree, question: CheckQuestion, progress: Progress | None = None) -> Said:
    """What the checkpoints beside the one that was chosen say; nothing where `path` names one checkpoint."""
    return Said()

"""Pairs of real checkpoints for the rules: what a training saved, changed, and compared."""

from pathlib import Path
from typing import Any

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, DiffOptions
from ckptcheck.comparison.checkpoints import diff_checkpoints
from ckptcheck.conventions.explaining import explain
from ckptcheck.finding import Finding, NotJudged
from ckptcheck.readers.reading import read_raw
from ckptcheck.verdict.two_checkpoints import pair_of
from tests.rules.judging import of_pair


def diffed(sides: tuple[Path, Path], **options: Any) -> CheckpointDiff:
    """The comparison of two checkpoints."""
    left, right = (explain(read_raw(side)) for side in sides)
    return diff_checkpoints(left, right, DiffOptions(**options))


def said(
    sides: tuple[Path, Path], code: str, *, freeze: dict[str, str] | None = None, **options: Any
) -> tuple[list[Finding], list[NotJudged]]:
    """What the rule of one code finds in two checkpoints, and what it cannot judge."""
    asked = DiffOptions(**options)
    findings, not_judged = of_pair(pair_of(diffed(sides, **options), asked, freeze or {}), (code,))
    return list(findings), list(not_judged)

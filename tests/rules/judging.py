"""What the rules say of a subject, as findings and what was not judged."""

from collections.abc import Sequence

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff
from ckptcheck.finding import Finding, NotJudged
from ckptcheck.rules.pairs import pair as pairs
from ckptcheck.rules.pairs.table import PAIR_RULES
from ckptcheck.rules.rule import chosen, judged

Said = tuple[tuple[Finding, ...], tuple[NotJudged, ...]]


def stale_moments(diff: CheckpointDiff, ignore: Sequence[str] = ()) -> Said:
    return of_pair(pairs.Pair(diff), ("CK106",), ignore)


def of_pair(pair: pairs.Pair, select: Sequence[str] = ("CK",), ignore: Sequence[str] = ()) -> Said:
    findings, not_judged = judged(chosen(PAIR_RULES, select, ignore), pair, pairs.WHY_NOT)
    return tuple(findings), tuple(not_judged)

"""What is asked of one checkpoint, and what each part of the answer is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ckptcheck.finding import Finding, Json, NotJudged
from ckptcheck.verdict.decisions import NONE, Decisions
from ckptcheck.verdict.purpose import AUTO


@dataclass(frozen=True, slots=True)
class CheckQuestion:
    """What is asked of a checkpoint.

    Attributes:
        purpose: "auto", "resume" or "release".
        target: the training that shall load it, None for no dry-run.
        freeze: contracts by glob over parameter names.
        select, ignore: codes by prefix.
        require: codes by prefix that must be judged.
        fail_on: the least severe finding that fails.
        decided: how much findings weigh, and which are accepted.
    """

    purpose: str = AUTO
    target: str | None = None
    freeze: Mapping[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ("CK",)
    ignore: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    fail_on: str = "error"
    decided: Decisions = NONE


@dataclass(slots=True)
class Said:
    """What one part of the check says: findings, what was not judged, and its own part of the result.

    `codes` are those of the rules that were asked.
    """

    findings: list[Finding] = field(default_factory=list)
    not_judged: list[NotJudged] = field(default_factory=list)
    parts: dict[str, Json] = field(default_factory=dict)
    codes: frozenset[str] = frozenset()

    @property
    def judged(self) -> frozenset[str]:
        """The codes of the rules that could judge all that they were asked."""
        return self.codes - {one.code for one in self.not_judged}

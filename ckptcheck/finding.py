"""The nouns that every command returns and every report renders: findings and the result around them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

SCHEMA: Final = 1
"""Version of the JSON layout of a result."""

EXIT_PASS: Final = 0
EXIT_FAIL: Final = 1
EXIT_ERROR: Final = 2
EXIT_INCONCLUSIVE: Final = 3
EXIT_INTERRUPTED: Final = 130


class Severity(StrEnum):
    """How much a finding weighs where severities gate."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


FAIL_ON: Final[Mapping[str, frozenset[Severity]]] = {
    "error": frozenset({Severity.ERROR}),
    "warning": frozenset({Severity.ERROR, Severity.WARNING}),
    "never": frozenset(),
}
"""Choice of --fail-on to the severities that fail what would pass."""


class Verdict(StrEnum):
    """The answer of a command."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"


EXIT_CODES: Final[Mapping[Verdict, int]] = {
    Verdict.PASS: EXIT_PASS,
    Verdict.FAIL: EXIT_FAIL,
    Verdict.ERROR: EXIT_ERROR,
    Verdict.INCONCLUSIVE: EXIT_INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was found; None in a field means that it does not apply.

    `optimizer` and `group` count from 0, `step` from 1 (0 is before the first step), `rank` from 0.
    `stage` is one of the stages of a step, or "load".
    """

    path: str | None = None
    parameter: str | None = None
    key: str | None = None
    optimizer: int | None = None
    group: int | None = None
    step: int | None = None
    stage: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """Why a finding does not gate.

    `until` is the last day on which that holds, an ISO date, None for good; `source` says where it is written.
    """

    reason: str
    until: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A coded judgement with its place, its numbers and what to do about it; `accepted` says why it does not gate."""

    code: str
    name: str
    severity: Severity
    message: str
    where: Place
    evidence: Mapping[str, Json] = field(default_factory=dict)
    fix: str = ""
    accepted: Accepted | None = None


def gates(finding: Finding, fail_on: str) -> bool:
    """Whether a finding fails what would pass, under a choice of --fail-on; one that is accepted never does."""
    return finding.accepted is None and finding.severity in FAIL_ON[fail_on]


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A rule that lacked what it needs, and what that was."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compared:
    """How much was compared; all zero is never a pass.

    `steps` counts step records, `parameters` distinct parameter names, `state_tensors` distinct
    (optimizer, parameter, key) entries, `bytes` the bytes of every tensor behind a compared digest, one side.
    """

    steps: int = 0
    parameters: int = 0
    state_tensors: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """The code that explains the first divergence; confidence is "certain", "likely" or "unknown"."""

    code: str
    confidence: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a command found out: the frame of schema 1. It is true where the verdict is pass, and only there.

    `parts` holds what the command adds to the frame (`trajectory`, `crossed`, ...), ready to be written
    as JSON. `error` is the one line of verdict "error".
    """

    command: str
    verdict: Verdict
    compared: Compared = Compared()
    first_divergence: Place | None = None
    cause: Cause | None = None
    findings: tuple[Finding, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    environment: Mapping[str, Json] = field(default_factory=dict)
    parts: Mapping[str, Json] = field(default_factory=dict)
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether the verdict is pass."""
        return self.verdict is Verdict.PASS

    def __bool__(self) -> bool:
        return self.passed  # so that `assert ckptcheck.verify(...)` is no assertion that always holds

    @property
    def exit_code(self) -> int:
        """The exit code of the verdict, before any option changes it."""
        return EXIT_CODES[self.verdict]

"""What a project has decided about findings: how much they weigh, and which of them it lives with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from ckptcheck.config import SEVERITIES, Acceptance
from ckptcheck.errors import UsageError
from ckptcheck.finding import FAIL_ON, Severity
from ckptcheck.verdict.baseline import Baseline, read_baseline


@dataclass(frozen=True, slots=True)
class Decisions:
    """What a project has decided about the findings of a command.

    Attributes:
        severity: severities by code or its beginning; of several the longest holds.
        accept: findings that do not gate.
        fail_on: the least severe finding that fails what would pass.
        baseline: findings that were there already; None for none.
        keep: where to write a baseline of what is found now; None for nowhere.
        today: the day on which acceptances are held against their dates.
    """

    severity: Mapping[str, Severity] = field(default_factory=dict)
    accept: tuple[Acceptance, ...] = ()
    fail_on: str = "error"
    baseline: Baseline | None = None
    keep: Path | None = None
    today: date = field(default_factory=date.today)

    def is_in_force(self, one: Acceptance) -> bool:
        """Whether an acceptance holds today; on its last day it does."""
        return one.until is None or self.today <= one.until


NONE: Final = Decisions(today=date.min)
"""No decisions at all: there is nothing that a day could end."""


def decisions(
    command: str,
    *,
    severity: Mapping[str, str],
    accept: Sequence[Acceptance],
    fail_on: str = "error",
    baseline: Path | str | None = None,
    write_baseline: Path | str | None = None,
) -> Decisions:
    """What was decided, checked before anything heavy is done; the baseline is one that `command` has written.

    Raises UsageError for a code that no rule has, a severity that there is not, an acceptance without a reason, and
    what is no baseline.
    """
    if fail_on not in FAIL_ON:
        raise UsageError(f"--fail-on {fail_on!r} is unknown: use {', '.join(FAIL_ON)}")
    for code, weight in severity.items():
        if weight not in SEVERITIES:
            raise UsageError(f"severity {code}: {weight!r} is none: use {', '.join(SEVERITIES)}")
    for one in accept:
        if not one.reason.strip():
            raise UsageError(f"{one.source}: {one.code} is accepted without a reason: say why")
    check_codes(severity, accept)
    return Decisions(
        {code: Severity(weight) for code, weight in severity.items()},
        tuple(accept),
        fail_on,
        read_baseline(Path(baseline), command) if baseline is not None else None,
        Path(write_baseline) if write_baseline is not None else None,
    )


def check_codes(severity: Iterable[str], accept: Sequence[Acceptance]) -> None:
    """UsageError for a code to weigh or to accept that no rule has, with the nearest that one has."""
    if not severity and not accept:
        return
    from ckptcheck.rules.table import BY_CODE

    told = [(f"severity {code}", code, any(known.startswith(code) for known in BY_CODE)) for code in severity]
    told += [(one.source, one.code, one.code in BY_CODE) for one in accept]
    for where, code, is_known in told:
        if not is_known:
            near = get_close_matches(code, BY_CODE, 1, 0.5)
            raise UsageError(f"{where}: no rule has the code {code}" + (f"; did you mean {near[0]}?" if near else ""))

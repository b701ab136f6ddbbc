"""The same fault, told by several kinds of rules, told once."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Final

from ckptcheck.finding import Finding, Place, Severity

WEIGHTS: Final = {severity: place for place, severity in enumerate(Severity)}
"""The place of a severity in the order of weight, the weightiest first."""


def told_once(stored: Iterable[Finding], loads: Sequence[Finding]) -> list[Finding]:
    """What rules over a file and rules over its load found; what both say is said by the latter, who know more.

    Two findings are the same where they have one code and neither place contradicts the other. The weightier severity
    of the two stays.
    """
    kept: list[Finding] = []
    weighed = [*loads]
    by_code: dict[str, list[int]] = {}
    for place, one in enumerate(loads):
        by_code.setdefault(one.code, []).append(place)
    for one in stored:
        same = [place for place in by_code.get(one.code, ()) if _agree(one.where, loads[place].where)]
        for place in same:
            severity = min(one.severity, weighed[place].severity, key=WEIGHTS.__getitem__)
            weighed[place] = replace(weighed[place], severity=severity)
        kept += [] if same else [one]
    return [*kept, *weighed]


def _agree(left: Place, right: Place) -> bool:
    """Whether no field of the one contradicts the other; where a file's own path is told, it is no place of a load."""
    return all(
        one == other or one is None or other is None
        for (name, one), other in zip(asdict(left).items(), asdict(right).values(), strict=True)
        if name not in ("path", "stage", "step")
    )

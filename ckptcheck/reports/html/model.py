"""What a page is told of a result: its JSON, with long lists in columns, and the phrases that every report shares."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ckptcheck.finding import Finding, Json, Result, Severity, Verdict
from ckptcheck.reports import words
from ckptcheck.reports.distances import distance, entries_of, numbers_at, spoken
from ckptcheck.reports.headlines import headline
from ckptcheck.reports.html.distances import distances, of_rank
from ckptcheck.reports.html.encoding import table
from ckptcheck.reports.json import document

_IN_COLUMNS: Final = ("differences", "tensors", "values", "contract")
"""Parts that may have very many rows, of one kind each."""
_LEFT_OUT: Final = frozenset({"trajectory", "divergence", "magnitudes"})
"""Parts that the page draws from `distances` and `stages`."""
_WITHOUT_VERDICT: Final = frozenset({"inspect", "record", "save", "resume", "explain"})
MOST_OF_A_STAGE: Final = 500
MOST_FINDINGS: Final = 3000
MOST_ROWS: Final = 20_000
"""Rows of a part that a page holds."""


def model(result: Result) -> dict[str, Json]:
    """Return the whole as plain JSON values."""
    kept = replace(result, findings=_weightiest(result))
    drawn = {name: part for name, part in result.parts.items() if name not in _LEFT_OUT}
    told = document(replace(kept, parts=drawn))
    for name in _IN_COLUMNS:
        part = told.get(name)
        if isinstance(part, list) and all(isinstance(row, Mapping) for row in part):
            rows = [row for row in part[:MOST_ROWS] if isinstance(row, dict)]
            told[name] = {**table(rows), "of": len(part)}
    if "trajectory" in result.parts:
        told["magnitudes"] = table(_greatest(_first_rows(result)))
    told["distances"] = distances(result)
    told["said"] = {**_said(kept), "findings": len(result.findings)}
    return told


def _weightiest(result: Result) -> tuple[Finding, ...]:
    """The findings that a page holds, in their order: where there are more, the cause and the most severe."""
    cause, order = words.cause_finding(result), [*Severity]
    places = range(len(result.findings))
    ranked = sorted(places, key=lambda place: (result.findings[place] is not cause,
                                               order.index(result.findings[place].severity), place))  # fmt: skip
    return tuple(result.findings[place] for place in sorted(ranked[:MOST_FINDINGS]))


def _greatest(rows: Iterable[dict[str, Json]]) -> list[dict[str, Json]]:
    """Of each stage of each run the rows that are furthest apart, as many as anybody looks at."""
    alike: dict[tuple[Json, Json], list[dict[str, Json]]] = {}
    for row in rows:
        alike.setdefault((row.get("run"), row.get("stage")), []).append(row)
    return [row for some in alike.values() for row in sorted(some, key=_nearness)[:MOST_OF_A_STAGE]]


def _nearness(row: Mapping[str, Json]) -> float:
    distance = row.get("rel_l2")
    return -distance if isinstance(distance, (int, float)) else -math.inf if distance is not None else 0.0


def _lead(result: Result, cause: Finding | None) -> int | None:
    """The place of the finding that the top of the page tells: the cause, else the weightiest that gates."""
    if cause is not None:
        return next(place for place, one in enumerate(result.findings) if one is cause)
    if result.cause is not None or result.verdict is Verdict.PASS:
        return None
    order = [*Severity]
    open_ones = [
        (order.index(one.severity), place)
        for place, one in enumerate(result.findings)
        if one.accepted is None and not words.is_without_effect(one)
    ]
    return min(open_ones, default=(0, None))[1]


def has_verdict(result: Result) -> bool:
    """Whether a command judges; others just tell, unless they come to grief."""
    return result.command not in _WITHOUT_VERDICT or result.verdict is Verdict.ERROR


def _first_rows(result: Result) -> Iterator[dict[str, Json]]:
    """The rows of the load and of the first step that differs, run by run."""
    first: dict[Json, Json] = {}
    measured = "magnitudes" in result.parts
    for row in map(of_rank, entries_of(result, "magnitudes" if measured else "trajectory")):
        step, run = row.get("step"), row.get("run")
        if row.get("stage") == "load" or first.setdefault(run, step) == step:
            yield {name: value for name, value in row.items() if value is not None}


def _said(result: Result) -> dict[str, Json]:
    """The phrases of the text report: the page says the same in the same words."""
    cause, first = words.cause_finding(result), result.first_divergence
    at: dict[str, Json] | None = None
    if first is not None:
        numbers = numbers_at(result, first)
        at = {"when": words.when(first), "what": spoken(first, numbers), "distance": distance(numbers)}
    return {
        "headline": headline(result),
        "has_verdict": has_verdict(result),
        "cause": next((place for place, one in enumerate(result.findings) if one is cause), None),
        "lead": _lead(result, cause),
        "first": at,
    }

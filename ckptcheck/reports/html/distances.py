"""The distances of a run in columns: what the curve and the heat map are drawn from.

Where a result has measured them they are the `divergence` of its runs. Two traces alone have L2 norms: how far the
norms of a tensor are apart is then shown, which is the least that its distance can be.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ckptcheck.finding import Json, Result
from ckptcheck.reports.distances import Entry, entries_of
from ckptcheck.reports.html.encoding import numbers, table

METRICS: Final = ("rel_l2", "max_abs", "max_ulp")
MOST_CELLS: Final = 250_000
"""Tensors times steps of all runs that a page holds; 200,000 of one run."""
_NAMED: Final = ("section", "parameter", "key", "optimizer", "part", "numel", "first", "differs_at", "load", "steps")
_TENSORS: Final = frozenset({"param", "state", "grad", "buffer"})


def distances(result: Result) -> list[Json]:
    """A part for each run that has any: `{"run", "step", "steps", "tensors", METRICS..., "bound", ...}`.

    `tensors` are rows of `_NAMED` in columns, in the order of the numbers; `bound` says that these are lower bounds.
    """
    runs = entries_of(result, "divergence")
    measured = [run for run in runs if run.get("steps") and run.get("tensors")]
    found = [_part(run) for run in measured] or [*_of_norms(result)]
    kept: list[Json] = []
    cells = 0
    for part, size in found:
        cells += size
        if cells <= MOST_CELLS or not kept:
            kept.append(part)
    return kept


def _part(run: Entry) -> tuple[dict[str, Json], int]:
    """The part of one run, and how many cells it has."""
    steps, tensors = run.get("steps"), run.get("tensors")
    assert isinstance(steps, list)
    assert isinstance(tensors, list)
    rows = [one for one in tensors if isinstance(one, Mapping)]
    # Distances in ULP may be integers of 64 bits: where these do not fit a float32, four digits of them do.
    columns: dict[str, Json] = {name: numbers(_flat(rows, name), wide=name != "max_ulp") for name in METRICS}
    part: dict[str, Json] = {
        "run": run.get("run"),
        "step": run.get("step"),
        "steps": steps,
        "tensors": table([{name: row.get(name) for name in _NAMED} for row in rows]),
        **columns,
        "bound": False,
        "left_out": run.get("left_out"),
        "not_measured": _reasons(rows),
    }
    return part, sum(len(_values(row, METRICS[0])) for row in rows)


def _flat(rows: Sequence[Entry], name: str) -> Iterator[Json]:
    for row in rows:
        yield from _values(row, name)


def _values(row: Entry, name: str) -> list[Json]:
    values = row.get(name)
    return values if isinstance(values, list) else []


def _reasons(rows: Sequence[Entry]) -> list[Json]:
    """Why some numbers are not known, each reason once."""
    found: dict[str, None] = {}
    for row in rows:
        for one in _values(row, "not_measured"):
            if isinstance(one, Mapping):
                found.setdefault(str(one.get("reason")))
    return [*found]


def _of_norms(result: Result) -> Iterator[tuple[dict[str, Json], int]]:
    """The runs of a trajectory by the norms in it."""
    runs: dict[Json, dict[tuple[Json, ...], dict[int, float | None]]] = {}
    for row in map(of_rank, entries_of(result, "trajectory")):
        step = row.get("step")
        if row.get("section") in _TENSORS and row.get("stage") != "load" and isinstance(step, int):
            name = tuple(row.get(key) for key in ("section", "parameter", "key", "optimizer"))
            runs.setdefault(row.get("run"), {}).setdefault(name, {})[step] = _gap(row)
    for run, tensors in runs.items():
        steps = sorted({step for gaps in tensors.values() for step in gaps})
        rows: list[dict[str, Json]] = [
            {
                **dict(zip(_NAMED[:4], name, strict=True)),
                "first": min(gaps),
                "steps": [*gaps],
                "rel_l2": [*gaps.values()],
                "differs_at": len(gaps),
            }
            for name, gaps in tensors.items()
        ]
        part, cells = _part({"run": run, "step": None, "steps": [*steps], "tensors": [*rows]})
        yield part | {"bound": True}, cells


def of_rank(row: Entry) -> Entry:
    """The row of a trajectory with its rank in the run's name, where it has one that is not there."""
    rank = row.get("rank")
    ending = f", rank {rank}"
    run = str(row.get("run"))
    return row if rank is None or run.endswith(ending) else {**row, "run": run + ending}


def _gap(row: Entry) -> float | None:
    """How far the norms of both sides are apart, over that of the left one: at most the relative L2 distance.

    None where that tells nothing: two tensors that differ may have one norm.
    """
    left, right = row.get("left_norm"), row.get("right_norm")
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)) or not left:
        return None
    return abs(right - left) / left or None if math.isfinite(left) and math.isfinite(right) else None

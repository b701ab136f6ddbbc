"""The traces of two folders, paired process by process."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ckptcheck.errors import TraceError
from ckptcheck.trace.reading import Trace


class TracePair(NamedTuple):
    """The traces of one process on both sides; `rank` is None where each side has one process only."""

    rank: int | None
    left: Trace
    right: Trace


def paired(left: Path, right: Path, lefts: Sequence[Trace], rights: Sequence[Trace]) -> list[TracePair]:
    """Pair by rank, and the processes of one rank by the order in which they started.

    Raises TraceError where the sides have other ranks, or other numbers of processes of a rank, or where nothing
    says which of several processes of a rank came first.
    """
    if len(lefts) == len(rights) == 1:
        return [TracePair(None, lefts[0], rights[0])]
    sides = [_by_rank(lefts), _by_rank(rights)]
    if sides[0].keys() != sides[1].keys():
        told = [", ".join(map(str, sorted(side))) for side in sides]
        raise TraceError(
            f"{left} holds traces of ranks {told[0]}, {right} of ranks {told[1]}: only runs with the same ranks can be "
            "compared; name one file of each to compare these alone"
        )
    pairs = []
    for rank in sorted(sides[0]):
        ours, theirs = sides[0][rank], sides[1][rank]
        if len(ours) != len(theirs):
            raise TraceError(
                f"{left} holds {_counted(ours)} of rank {rank}, {right} {len(theirs)}: they cannot be paired; "
                "name one file of each to compare these alone"
            )
        pairs += [TracePair(rank, *pair) for pair in zip(_in_order(ours), _in_order(theirs), strict=True)]
    return pairs


def _by_rank(traces: Sequence[Trace]) -> dict[int, list[Trace]]:
    found: dict[int, list[Trace]] = {}
    for trace in traces:
        found.setdefault(_rank(trace), []).append(trace)
    return found


def _rank(trace: Trace) -> int:
    rank = trace.header.get("rank", 0)
    if not isinstance(rank, int):
        raise TraceError(f"{trace.path} cannot be read as a trace (its rank is {rank!r}); record it again")
    return rank


def _in_order(traces: list[Trace]) -> list[Trace]:
    """The traces of one rank by their start."""
    if len(traces) == 1:
        return traces
    starts = [str(trace.header.get("started", "")) for trace in traces]
    if "" in starts or len(set(starts)) < len(starts):
        raise TraceError(
            f"{traces[0].path.parent} holds {_counted(traces)} of rank {_rank(traces[0])}, and they do not say which "
            "started first: name one file of each side"
        )
    return [trace for _, trace in sorted(zip(starts, traces, strict=True), key=lambda pair: pair[0])]


def _counted(traces: Sequence[Trace]) -> str:
    return f"{len(traces)} trace{'' if len(traces) == 1 else 's'}"

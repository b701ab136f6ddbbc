"""The processes of several runs, paired: those of one rank train the same part of the same training."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ckptcheck.errors import TraceError
from ckptcheck.experiment.commands.recorded import Recorded
from ckptcheck.trace.file import Trace

Seat: TypeAlias = tuple[int, int]
"""(rank, number among the processes of that rank): not every process that trains is a rank of one training."""


@dataclass(frozen=True, slots=True)
class Crew:
    """The traces of one seat in every run of an experiment; `resumed` is None where the resumed run lacks it.

    `number` is that of the seat among those of its rank.
    """

    rank: int
    reference: Trace
    repeats: tuple[Trace, ...]
    source: Trace
    resumed: Trace | None
    number: int = 0

    def trace_in(self, run: Recorded) -> Trace | None:
        """The trace of the same seat in another run; None where that has none."""
        return seats(run.traces).get((self.rank, self.number))


def seats(traces: Iterable[Trace]) -> dict[Seat, Trace]:
    """The traces of one run by seat."""
    found: dict[Seat, Trace] = {}
    for trace in traces:
        rank = int(trace.header.get("rank", 0))
        number = sum(1 for seat in found if seat[0] == rank)
        found[rank, number] = trace
    return found


def crews(whole: Mapping[str, Recorded], source: Recorded, resumed: Recorded) -> list[Crew]:
    """The processes of all runs, paired; `whole` are the reference, first, and its repeats, by name.

    TraceError where a repeat or the run that was resumed has other processes than the reference.
    """
    reference, *repeats = whole.values()
    own = seats(reference.traces)
    for other in (*repeats, source):
        if seats(other.traces).keys() != own.keys():
            raise TraceError(
                f"the {reference.name} run trained in {_spelled(own)}, the {other.name} run in "
                f"{_spelled(seats(other.traces))}: runs of one command must have the same processes"
            )
    right, left = seats(resumed.traces), seats(source.traces)
    return [
        Crew(seat[0], trace, tuple(seats(one.traces)[seat] for one in repeats), left[seat], right.get(seat), seat[1])
        for seat, trace in own.items()
    ]


def _spelled(found: Mapping[Seat, Trace]) -> str:
    if not found:
        return "no process"
    ranks = ", ".join(str(rank) for rank, _ in found)
    return f"{len(found)} process{'' if len(found) == 1 else 'es'} (rank {ranks})"

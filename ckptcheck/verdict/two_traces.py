"""Two traces on disk, compared and judged process by process: digests and norms only, no values."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ckptcheck.comparison.bindings import bindings
from ckptcheck.comparison.drawing import idle_generators, with_draws_before, without_generators
from ckptcheck.comparison.non_finite import non_finite
from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.states import StateDiff, compare_states
from ckptcheck.comparison.traces import TraceDiff, compare_traces
from ckptcheck.errors import TraceError
from ckptcheck.finding import Compared, Finding, Json, NotJudged, Result, Verdict
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import Judgement, judge
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.state.training_state import TrainingState
from ckptcheck.trace.items import BUILT, LOAD, SAVED
from ckptcheck.trace.moved import moved_items, with_the_moved
from ckptcheck.trace.reading import Trace, open_traces
from ckptcheck.trace.states import replaced_by_load, state_after_step, state_at, without_silence
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.cases import within_tolerance
from ckptcheck.verdict.decisions import NONE, Decisions
from ckptcheck.verdict.grounds import grounds_of, settled
from ckptcheck.verdict.parts import trajectory_rows
from ckptcheck.verdict.pictures import pictures
from ckptcheck.verdict.scripts.telling import joined, of_rank
from ckptcheck.verdict.stage_strip import Sight
from ckptcheck.verdict.trace_placing import PlacedPair, alignment_rows, loaded_step, placed
from ckptcheck.verdict.trace_ranks import paired

WHY_NO_VALUES = "traces hold digests and norms, no values: verify measures exactly"


def compare_folders(
    left: Path, right: Path, policy: Policy, select: tuple[str, ...], ignore: tuple[str, ...], *,
    decided: Decisions = NONE,
) -> Result:  # fmt: skip
    """Compare the traces at two places, over the steps that both have; of several processes, rank by rank.

    A resumed run is held against the run that it continues, whichever side it was given as; a script's is placed on
    it by content. Raises TraceError where one is no trace, both have no step in common, or processes have no partner.
    """
    with _opened(left) as lefts, _opened(right) as rights:
        pairs = placed(paired(left, right, lefts, rights))
        with ExitStack() as moved:
            for pair in pairs:
                moved.callback(pair.right.close)
            places = (right, left) if pairs[0].swapped else (left, right)
            ranks = [_rank(pair, places, policy) for pair in pairs]
            return _Comparison(places, ranks, policy, select, ignore, decided).result()


@contextmanager
def _opened(path: Path) -> Iterator[list[Trace]]:
    traces = open_traces(path)
    try:
        yield traces
    finally:
        for one in traces:
            one.close()


def _rank(pair: PlacedPair, places: tuple[Path, Path], policy: Policy) -> "_Rank":
    trajectory = _trajectory(pair, places, policy)
    idle = idle_generators(trajectory, pair.left, pair.right) if pair.alignment is not None else {}
    trajectory = without_generators(trajectory, idle)
    return _Rank(pair, _case(pair, trajectory, idle), trajectory)


def _trajectory(pair: PlacedPair, places: tuple[Path, Path], policy: Policy) -> TraceDiff:
    trajectory = compare_traces(pair.left, pair.right, every=policy.tolerant)
    if pair.alignment is not None:
        trajectory = with_draws_before(trajectory, pair.left)
    trajectory = trajectory.without({})
    if not trajectory.steps:
        rank = "" if pair.rank is None else f" of rank {pair.rank}"
        spans = [
            f"{place} holds {_span(side)}{rank}" for place, side in zip(places, (pair.left, pair.right), strict=True)
        ]
        raise TraceError(f"{spans[0]}, {spans[1]}: no step in common, nothing can be compared{_hint(pair)}")
    return within_tolerance(trajectory, set(), policy) if policy.tolerant else trajectory


def _hint(pair: PlacedPair) -> str:
    raised = next((str(side.header["raised"]) for side in (pair.left, pair.right) if side.header.get("raised")), "")
    if raised and not (pair.left.steps and pair.right.steps):
        return f"; one script raised {raised} before its first update"
    every = max(int(side.header.get("every") or 1) for side in (pair.left, pair.right))
    return f"; one was recorded with --every {every}: record both with --every 1" if every > 1 else ""


def _span(trace: Trace) -> str:
    steps = trace.steps
    return f"steps {steps[0]} to {steps[-1]}" if steps else "no whole step"


def _case(pair: PlacedPair, trajectory: TraceDiff, idle: Mapping[str, int]) -> Case:
    load, step = _load(pair.left, pair.right)
    built = _built(pair, step)
    return Case(
        run="right",
        step=step if step is not None else trajectory.steps[0] - 1,
        load=load,
        bound=bindings(load, built) if load is not None else (),
        built=built,
        trajectory=trajectory,
        origins=Origins(pair.left),
        replaced=replaced_by_load(pair.right, step) if step is not None else frozenset(),
        commands=pair.alignment is not None,
        idle_generators=idle,
        non_finite=non_finite(pair.left, pair.right, trajectory.steps),
    )


def _load(left: Trace, right: Trace) -> tuple[StateDiff | None, int | None]:
    """The states around a save on the left and a load on the right, where both traces have recorded them."""
    loaded = loaded_step(right)
    if loaded is None:
        return None, None
    live = state_at(right, loaded, LOAD)
    if (loaded, SAVED) in left.moments:
        return compare_states(state_at(left, loaded, SAVED), live), loaded
    after = state_after_step(left, loaded)
    if after is None:
        return None, None
    live = with_the_moved(live, after, moved_items(right))
    after = with_the_moved(after, live, moved_items(left))
    return compare_states(without_silence(after, live), live), loaded


def _built(pair: PlacedPair, step: int | None) -> TrainingState | None:
    """The resumed run before its load: its own record of it, or where a script that loads began itself."""
    if step is None:
        return None
    if (step, BUILT) in pair.right.moments:
        return state_at(pair.right, step, BUILT)
    begin = next((place for place, moment in pair.left.moments if moment == LOAD), None)
    script = pair.alignment is not None and begin is not None
    return state_at(pair.left, begin, LOAD) if script and begin is not None else None


@dataclass(frozen=True, slots=True)
class _Rank:
    """One process of both sides, and what was made of it."""

    pair: PlacedPair
    case: Case
    trajectory: TraceDiff

    @property
    def is_hidden(self) -> bool:
        """Whether all that is trained is NaN or infinite on both sides, so that nothing can be told."""
        return self.case.non_finite is not None and self.case.non_finite.hides_all


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Every process of two sides, on the way to one result; `places` has the reference first."""

    places: tuple[Path, Path]
    ranks: Sequence[_Rank]
    policy: Policy
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    decided: Decisions

    def result(self) -> Result:
        """The result over all ranks: the worst of their verdicts, the first in time of what differs."""
        judged = self._judged()
        guilty = [one for one in judged if one.cause is not None]
        first = min(guilty or [one for one in judged if one.place is not None], key=_time, default=None)
        differs = bool(guilty) or any(one.trajectory.first is not None for one in self.ranks)
        whole = all(one.trajectory.compared.parameters and not one.is_hidden for one in self.ranks)
        sides, otherwise = self.ranks[0].pair, Verdict.PASS if whole else Verdict.INCONCLUSIVE
        result = Result(
            command="compare",
            verdict=Verdict.FAIL if differs else otherwise,
            compared=_compared([one.trajectory.compared for one in self.ranks]),
            first_divergence=first.place if first is not None else None,
            cause=first.cause if first is not None else None,
            findings=_findings(first, judged),
            not_judged=self._not_judged(judged),
            environment={"left": _facts(sides.left), "right": _facts(sides.right)},
            parts=self._parts(),
        )
        grounds = grounds_of(judged, self.select, self.ignore, otherwise)
        return settled(result, self.decided, grounds, self.select, self.ignore)

    def _judged(self) -> list[Judgement]:
        judged = [judge(one.case, self.select, self.ignore) for one in self.ranks]
        if len(judged) == 1 and self.ranks[0].pair.rank is None:
            return judged
        return joined([of_rank(one, rank.pair.rank or 0) for one, rank in zip(judged, self.ranks, strict=True)])

    def _not_judged(self, judged: Sequence[Judgement]) -> tuple[NotJudged, ...]:
        notes = [_said(one) for judgement in judged for one in judgement.not_judged]
        notes += [
            NotJudged("CK612", f"the trace {side.path} did not end cleanly: its run was cut short")
            for one in self.ranks for side in (one.pair.left, one.pair.right) if not side.ended
        ]  # fmt: skip
        return tuple(dict.fromkeys(notes))

    def _parts(self) -> dict[str, Json]:
        steps = [step for one in self.ranks for step in one.trajectory.steps]
        parts: dict[str, Json] = {
            "left": str(self.places[0]),
            "right": str(self.places[1]),
            "steps": [min(steps), max(steps)],
            "policy": self.policy.part,
            "trajectory": [row for one in self.ranks for row in self._rows(one)],
            "trajectory_left_out": sum(one.trajectory.left_out for one in self.ranks),
        }
        parts |= pictures([Sight(one.case, one.pair.left, one.pair.right, rank=one.pair.rank) for one in self.ranks])
        if len(self.ranks) > 1:
            parts["ranks"] = len(self.ranks)
        if self.ranks[0].pair.swapped:
            parts["reference"] = f"{self.places[0]}, which was given as the right side: the other one resumes it"
        if rows := alignment_rows([one.pair for one in self.ranks]):
            parts["alignment"] = rows
        return parts

    def _rows(self, rank: _Rank) -> list[Json]:
        rows = trajectory_rows(rank.case, WHY_NO_VALUES)
        if rank.pair.rank is None:
            return rows
        return [{**row, "rank": rank.pair.rank} if isinstance(row, dict) else row for row in rows]


def _time(one: Judgement) -> tuple[int, int]:
    place = one.place
    if place is None or place.step is None:
        return 0, 0
    return place.step, STAGE_ORDER[place.stage] if place.stage is not None else 0


def _findings(first: Judgement | None, judged: Sequence[Judgement]) -> tuple[Finding, ...]:
    """All findings, those of the rank that differs first before the others."""
    rest = [one for one in judged if one is not first]
    return tuple(finding for one in ([first] if first is not None else []) + rest for finding in one.findings)


def _compared(parts: Sequence[Compared]) -> Compared:
    """How much was compared: the ranks of one training have the same parameters."""
    return Compared(
        steps=sum(one.steps for one in parts),
        parameters=max(one.parameters for one in parts),
        state_tensors=max(one.state_tensors for one in parts),
        bytes=sum(one.bytes for one in parts),
    )


def _said(one: NotJudged) -> NotJudged:
    """The reason in words that fit two traces."""
    if one.code in ("CK609", "CK611"):
        return NotJudged(one.code, "two traces do not tell saving from noise: verify makes the runs that do")
    return one


def _facts(trace: Trace) -> dict[str, Json]:
    return {
        key: value
        for key, value in trace.header.items()
        if key in ("run", "torch", "python", "device", "flags", "digest")
    }

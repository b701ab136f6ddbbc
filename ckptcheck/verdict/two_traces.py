"""Two traces on disk, compared and judged: digests and norms only, no values."""

from dataclasses import replace
from pathlib import Path

from ckptcheck.comparison.bindings import bindings
from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.states import StateDiff, compare_states
from ckptcheck.comparison.traces import compare_traces
from ckptcheck.errors import TraceError
from ckptcheck.finding import Json, NotJudged, Result, Verdict
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.judge import judge
from ckptcheck.trace.file import Trace, open_traces
from ckptcheck.trace.items import BUILT, LOAD, SAVED
from ckptcheck.trace.states import replaced_by_load, state_after_step, state_at
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.cases import within_tolerance
from ckptcheck.verdict.parts import trajectory_rows

WHY_NO_VALUES = "traces hold digests and norms, no values: verify measures exactly"


def compare_folders(
    left: Path, right: Path, policy: Policy, select: tuple[str, ...], ignore: tuple[str, ...]
) -> Result:
    """Compare the traces at two places, over the steps that both have.

    Raises TraceError where one is no trace, or both have no step in common.
    """
    sides = [_one_trace(path) for path in (left, right)]
    trajectory = compare_traces(sides[0], sides[1], every=policy.tolerant).without({})
    if not trajectory.steps:
        spans = [_span(side) for side in sides]
        raise TraceError(f"{left} holds {spans[0]}, {right} {spans[1]}: no step in common, nothing can be compared")
    if policy.tolerant:
        trajectory = within_tolerance(trajectory, set(), policy)
    load, step = _load(sides[0], sides[1])
    case = Case(
        run="right",
        step=step if step is not None else trajectory.steps[0] - 1,
        load=load,
        bound=bindings(load) if load is not None else (),
        built=state_at(sides[1], step, BUILT) if step is not None and (step, BUILT) in sides[1].moments else None,
        trajectory=trajectory,
        origins=Origins(sides[0]),
        replaced=replaced_by_load(sides[1], step) if step is not None else frozenset(),
    )
    judged = judge(case, select, ignore)
    fails = trajectory.first is not None or judged.cause is not None
    notes = [NotJudged("CK612", f"the trace {side.path} did not end cleanly: its run was cut short")
             for side in sides if not side.ended]  # fmt: skip
    parts: dict[str, Json] = {
        "left": str(left),
        "right": str(right),
        "steps": [trajectory.steps[0], trajectory.steps[-1]],
        "policy": {"name": policy.name, "rtol": policy.rtol, "atol": policy.atol},
        "trajectory": trajectory_rows(case, WHY_NO_VALUES),
        "trajectory_left_out": trajectory.left_out,
    }
    return Result(
        command="compare",
        verdict=Verdict.FAIL if fails else Verdict.PASS if trajectory.compared.parameters else Verdict.INCONCLUSIVE,
        compared=trajectory.compared,
        first_divergence=judged.place,
        cause=judged.cause,
        findings=judged.findings,
        not_judged=(*(_said(one) for one in judged.not_judged), *notes),
        environment={"left": _facts(sides[0]), "right": _facts(sides[1])},
        parts=parts,
    )


def _said(one: NotJudged) -> NotJudged:
    """The reason in words that fit two traces."""
    if one.code in ("CK609", "CK611"):
        return NotJudged(one.code, "two traces do not tell saving from noise: verify makes the runs that do")
    return one


def _one_trace(path: Path) -> Trace:
    traces = open_traces(path)
    if len(traces) > 1:
        raise TraceError(f"{path} holds {len(traces)} traces, one a process: name one of its files")
    return traces[0]


def _span(trace: Trace) -> str:
    steps = trace.steps
    return f"steps {steps[0]} to {steps[-1]}" if steps else "no whole step"


def _load(left: Trace, right: Trace) -> tuple[StateDiff | None, int | None]:
    """The states around a save on the left and a load on the right, where both traces have recorded them."""
    loaded = next((step for step, moment in right.moments if moment == LOAD and step > 0), None)
    if loaded is None:
        return None, None
    live = state_at(right, loaded, LOAD)
    if (loaded, SAVED) in left.moments:
        return compare_states(state_at(left, loaded, SAVED), live), loaded
    after = state_after_step(left, loaded)
    # Steps do not record modes; what the left cannot say is not held against the right.
    return (compare_states(replace(after, modes=live.modes), live), loaded) if after is not None else (None, None)


def _facts(trace: Trace) -> dict[str, Json]:
    return {
        key: value
        for key, value in trace.header.items()
        if key in ("run", "torch", "python", "device", "flags", "digest")
    }

"""Cases for the rules, from the traces of an experiment."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ckptcheck.comparison.bindings import bindings
from ckptcheck.comparison.freezing import Breach, breaches
from ckptcheck.comparison.non_finite import non_finite
from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.rounding_gradients import rounding_gradients
from ckptcheck.comparison.states import StateDiff, compare_states
from ckptcheck.comparison.traces import Difference, TraceDiff, compare_traces
from ckptcheck.experiment.floor import Floor, FloorPass
from ckptcheck.experiment.load_pass import LoadPass
from ckptcheck.experiment.noise import NUMERIC, SETTINGS, Noise, touched_by_save
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed
from ckptcheck.experiment.second_pass import SecondPass
from ckptcheck.rules.runs.case import Case, Measured, Saving
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import BUILT, LOAD, SAVED, Item
from ckptcheck.trace.states import replaced_by_load, shared_by_load, state_at
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.divergence import curve_of

LAST_LINES: Final = 6
"""Lines that are shown of a resumed run that raised."""
REPEAT: Final = re.compile(r"repeat(-\d+)?")
"""The names of repeats; runs that are made once more to measure have others."""


def case_of(
    experiment: Experiment, run: Resumed, noise: Noise, policy: Policy, *, measure: bool = True,
    against: str = REFERENCE,
) -> tuple[Case, str]:  # fmt: skip
    """The case of one resumed run, and why some of its magnitudes are missing ("" where none is).

    Its steps are held against those of the run `against`. Where something differs, both runs are made once more to
    measure it, unless `measure` is False.
    """
    left, right = experiment.traces[against], run.trace
    raised = None if run.outcome.status == "ended" else f"{run.outcome.error} ({run.outcome.place})"
    if right is None or (run.step, LOAD) not in right.moments:
        return Case(run.name, run.step, raised=raised, last_lines=_last_lines(run), raised_step=_raised_step(run)), ""
    saved = experiment.traces[run.source]
    load = compare_states(state_at(saved, run.step, SAVED), state_at(right, run.step, LOAD))
    numerics = policy.state_exact and noise.only_numeric and not across(experiment.settings.devices)
    whole = compare_traces(left, right, first=run.step + 1, every=policy.tolerant or numerics)
    whole = without_unseen_inputs(whole, load, left, right)
    rounding = rounding_gradients((left, right), run.step) if whole.first is not None else frozenset()
    if numerics and against != REFERENCE:
        # The floor is that of runs without a resume: a run that has left their course is held to its exact stages.
        whole = replace(whole, differences=tuple(one for one in whole.differences if one.stage not in NUMERIC))
    floor = _measured_floor(experiment, run, rounding) if numerics and measure and _numeric(whole) else None
    trajectory = judged_part(whole, noise, policy, experiment.settings.devices, floor)
    measured: Measured = {}
    missing = ""
    curve = None
    if measure and noise.only_numeric and noise.first_step <= run.step and not policy.tolerant:
        measured, missing = LoadPass(experiment, run).measure(load), "equal runs differ before the load"
    elif measure and (trajectory.first is not None or raised is not None):
        second = SecondPass(experiment, run, tolerance=policy.tolerance, against=against)
        curve = curve_of(experiment, left, right, whole)
        measured, missing = second.measure(load, trajectory, curve)
        if policy.tolerant:
            trajectory = within_tolerance(trajectory, second.within, policy)
    built = state_at(right, run.step, BUILT)
    case = Case(
        run=run.name,
        step=run.step,
        load=load,
        bound=bindings(load, built),
        built=built,
        trajectory=trajectory,
        origins=Origins(left),
        measured={**(floor.differences if floor is not None else {}), **measured},
        curve=curve,
        floor=floor,
        rounding=tuple(sorted(rounding & {one.item.name for one in trajectory.differences})),
        replaced=replaced_by_load(right, run.step),
        non_finite=non_finite(left, right, whole.steps),
        shared=shared_by_load(saved, right, run.step),
        raised=raised,
        last_lines=_last_lines(run),
        raised_step=_raised_step(run),
        whole=noise.first is None and not across(experiment.settings.devices),
        seeded=noise.first is None or noise.only_numeric,
    )
    case = replace(case, other_step=loaded_step(case))
    return left_open(case, floor, whole, noise) if floor is not None else case, missing


def left_open(case: Case, floor: Floor, whole: TraceDiff, noise: Noise) -> Case:
    """The case with what may be noise as chance, where nothing that follows the load is beyond the floor."""
    found = (one for one in whole.differences if one.stage in NUMERIC and floor.leaves_open(one))
    first = next(found, None)
    if first is None or case.first is not None or noise.first is None:
        return case
    showed = "showed little of it" if floor.seen else "did not show it"
    chance = (
        f"the run resumed after step {case.step} differs from step {first.step} on, which may be noise: some equal "
        f"runs differ from step {noise.first.step} on, and those made once more to measure that {showed}"
    )
    return replace(case, noise=first, chance=chance)


def _last_lines(run: Resumed) -> tuple[str, ...]:
    """The end of what a resumed run printed that did not come to its end: its traceback, as a rule."""
    lines = tuple(line for line in run.outcome.last_lines.splitlines() if line.strip())
    return lines[-LAST_LINES:] if run.outcome.status != "ended" else ()


def _raised_step(run: Resumed) -> int | None:
    return run.outcome.step if run.outcome.status != "ended" and run.outcome.phase in ("step", "save") else None


def without_unseen_inputs(diff: TraceDiff, load: StateDiff | None, left: Trace, right: Trace) -> TraceDiff:
    """Without inputs that one side could not see: what is called in compiled code runs no hooks."""
    seen = [_sees_inputs(trace, diff.steps) for trace in (left, right)]
    one_compiled = load is not None and load.left.flags.get("compiled_modules") != load.right.flags.get(
        "compiled_modules"
    )
    if seen[0] == seen[1] and not one_compiled:
        return diff
    kept = tuple(one for one in diff.differences if one.item.kind != "inputs" or (one.left and one.right))
    return replace(diff, differences=kept, inputs_unseen=seen[0] != seen[1])


def _sees_inputs(trace: Trace, steps: tuple[int, ...]) -> bool:
    """Whether anything that entered the model is recorded of these steps."""
    known, wanted = (item for item, _ in trace.tensors() if item.kind == "inputs"), {*steps}
    return any(step in wanted for item in known for step, _ in trace.digests(item))


def _numeric(diff: TraceDiff) -> bool:
    return any(one.stage in NUMERIC for one in diff.differences)


def _measured_floor(experiment: Experiment, run: Resumed, rounding: frozenset[str]) -> Floor:
    """The floor of one resumed run, measured against all repeats that have been made."""
    repeats = [name for name in experiment.traces if REPEAT.fullmatch(name)]
    return replace(FloorPass(experiment, run, repeats).measure(), rounding=rounding)


def judged_part(
    diff: TraceDiff, noise: Noise, policy: Policy, devices: tuple[str, str], floor: Floor | None = None
) -> TraceDiff:
    """What of a trajectory can be judged: within the noise floor, and across devices the exact stages only."""
    judged = noise.strip(diff, policy.state_exact and noise.only_numeric, floor.beyond if floor is not None else None)
    if across(devices) and not policy.tolerant:
        # Neither kernels nor generators of two devices agree; what is loaded, and the settings, must.
        return replace(judged, differences=tuple(one for one in judged.differences if one.stage in SETTINGS))
    return judged


def across(devices: tuple[str, str]) -> bool:
    """Whether the two runs train on devices of different kinds."""
    return devices[0].split(":")[0] != devices[1].split(":")[0]


def within_tolerance(diff: TraceDiff, within: set[tuple[int, Item]], policy: Policy) -> TraceDiff:
    """Without the numeric differences of which no element is beyond the tolerance."""
    return replace(diff, differences=tuple(one for one in diff.differences if not _tolerated(one, within, policy)))


def _tolerated(one: Difference, within: set[tuple[int, Item]], policy: Policy) -> bool:
    if one.stage not in NUMERIC or one.left is None or one.right is None or one.left.presence != one.right.presence:
        return False
    amounts = policy.tolerance.of(one.item, one.left.spec.dtype if one.left.spec is not None else "float")
    if amounts is None:
        return False
    left, right = one.left.value, one.right.value
    if isinstance(left, float) and isinstance(right, float):
        return abs(right - left) <= amounts[1] + amounts[0] * abs(left)
    return (one.step, one.item) in within


def loaded_step(case: Case) -> int | None:
    """The step other than k after which every differing parameter and state tensor had its loaded content."""
    if case.load is None or case.origins is None or not (case.trajectory and case.trajectory.first):
        return None
    if _as_built(case):
        return None  # weights that nothing has moved are those of many steps, and of none that was loaded
    contents = []
    tensors = 0
    for one in case.load.entries:
        if one.section in ("param", "state"):
            if one.right is None or one.left is None or one.right.digest is None:
                return None
            item = Item(one.section, one.name, one.key, -1 if one.optimizer is None else one.optimizer)
            contents.append((item, one.right.digest.value))
            tensors += one.right.spec is not None and one.right.spec.numel > 1
    step = case.origins.common_step(contents) if tensors else None
    return step if step != case.step else None


def _as_built(case: Case) -> bool:
    """Whether parameters differ at the load, and all that do are still as the resumed run began with them."""
    built = case.built.parameters if case.built is not None else {}
    differing = case.loaded("param")
    return bool(differing) and all(
        one.right is not None and (before := built.get(one.name)) is not None
        and before.entry.digest == one.right.digest
        for one in differing
    )  # fmt: skip


def saving_of(experiment: Experiment, noise: Noise) -> tuple[Saving, ...]:
    """What each save of the reference did to it."""
    trace = experiment.traces[REFERENCE]
    savings = []
    for step in experiment.settings.resume_at:
        touched = touched_by_save(trace, step, drawn_after(trace, step))
        if noise.repeated:
            # What a save moved and moved back, or what the next step sets anyway, is no perturbation.
            later = noise.perturbs if noise.perturbs is not None and noise.perturbs.step > step else None
            savings.append(Saving(step, touched if later else (), later))
        else:
            savings.append(
                Saving(step, tuple(one for one in touched if one.item.kind not in ("structure", "grad")), None)
            )
    return _only_first(savings)


def _only_first(savings: list[Saving]) -> tuple[Saving, ...]:
    # The first save that perturbs explains what comes later.
    guilty = [one for one in savings if one.touched] or [one for one in savings if one.later]
    return tuple(guilty[:1])


def drawn_after(trace: Trace, step: int) -> frozenset[str]:
    """The generators that a run draws from after a step."""
    return compare_traces(trace, trace, first=step + 1).drawn if trace.steps[-1] > step else frozenset()


def needs_repeat(experiment: Experiment) -> bool:
    """Whether a save visibly changed the live run, so that only a run without saving can tell whether it matters."""
    trace = experiment.traces[REFERENCE]
    return any(touched_by_save(trace, step, drawn_after(trace, step)) for step in experiment.settings.resume_at)


def breach_cases(
    experiment: Experiment, resumed: list[Resumed], freeze: Mapping[str, str]
) -> tuple[list[Case], list[str]]:
    """One case for each run whose freeze contracts are held against it, and the patterns that matched nothing."""
    traces = {REFERENCE: experiment.traces[REFERENCE]} | {one.name: one.trace for one in resumed if one.trace}
    return held_contracts(traces, freeze)


def held_contracts(traces: Mapping[str, Trace], freeze: Mapping[str, str]) -> tuple[list[Case], list[str]]:
    """Freeze contracts held against runs by name: a case for each run, and the patterns that matched nothing."""
    if not freeze:
        return [], []
    cases: list[Case] = []
    unmatched: list[str] = []
    seen: set[tuple[str, str, int]] = set()
    for name, trace in traces.items():
        found, unmatched_here = breaches(trace, freeze)
        unmatched = unmatched or list(unmatched_here)
        fresh = tuple(one for one in found if (one.parameter, one.what, one.step) not in seen)
        seen |= {(one.parameter, one.what, one.step) for one in found}
        already = {(one.parameter, one.what) for case in cases for one in case.breaches or ()}
        news: tuple[Breach, ...] = tuple(one for one in fresh if (one.parameter, one.what) not in already)
        cases.append(Case(name, 0, breaches=news, breached_run=name))
    return cases, unmatched

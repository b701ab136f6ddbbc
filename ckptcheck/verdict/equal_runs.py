"""Runs that should be equal, held against each other: the noise floor, what saving does, and what is chance."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.comparison.traces import Difference, TraceDiff, compare_traces
from ckptcheck.experiment.noise import Noise, assess
from ckptcheck.experiment.plan import REFERENCE, Experiment, Resumed
from ckptcheck.finding import Cause, Json
from ckptcheck.rules.runs.case import Case
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import STEP
from ckptcheck.verdict.asking import Policy
from ckptcheck.verdict.cases import case_of, needs_repeat, saving_of

MORE: Final = 2
"""How many more runs of each side are made where the resumed run differs from itself."""
LISTED: Final = 200
"""Tensors of the floor that a result lists, the widest first."""


def repeat_names(done: int, more: int) -> list[str]:
    """The names of further repeats, where some have been made."""
    return ["repeat" if place == 0 else f"repeat-{place + 1}" for place in range(done, done + more)]


def floor_of_target(experiment: Experiment, repeats: int, resumed: Sequence[Resumed]) -> Noise:
    """Hold equal runs against each other; more of them where something differs and only they can tell why."""
    if not repeats and (needs_repeat(experiment) or _anything_differs(experiment, resumed)):
        experiment.run_whole(repeat_names(0, 1))
        repeats = 1
    reference = experiment.traces[REFERENCE]
    noise = assess(reference, _repeats(experiment, repeats))
    if repeats == 1 and noise.floor:
        experiment.run_whole(repeat_names(1, 1))
        repeats = 2
        noise = assess(reference, _repeats(experiment, repeats))
    if noise.perturbs is not None and not any(one.touched for one in saving_of(experiment, noise)):
        return _told_from_chance(experiment, noise, repeats)
    return noise


def _repeats(experiment: Experiment, count: int) -> list[Trace]:
    return [experiment.traces[name] for name in repeat_names(0, count)]


def _told_from_chance(experiment: Experiment, noise: Noise, repeats: int) -> Noise:
    """The noise where only the run that saves differed, and nothing was seen to move in the save: it may be chance.

    Another run that saves tells. Where it is equal to those that do not save, the first one was perturbed by chance.
    """
    assert noise.perturbs is not None
    reference, repeat = experiment.traces[REFERENCE], experiment.traces["repeat"]
    again = list(experiment.once_more({REFERENCE: f"{REFERENCE}-again-once-more"}).values())
    if again and _first(compare_traces(reference, again[0])) is not None:
        # Two runs that save and differ from each other: saving that draws anew in each process, or chance.
        again += experiment.once_more({REFERENCE: f"{REFERENCE}-again-once-more-2"}).values()
        experiment.run_whole(repeat_names(repeats, 1))
        repeats += 1
    equal = [one for one in _repeats(experiment, repeats)[1:] if _first(compare_traces(repeat, one)) is None]
    saving = [one for one in again if _first(compare_traces(repeat, one)) is not None]
    if len(equal) == repeats - 1 and len(saving) == len(again):
        return noise
    return assess(reference, _repeats(experiment, repeats), saves_by_chance=True)


def _first(diff: TraceDiff) -> Difference | None:
    """The first difference beside generators that nothing draws from, and clocks."""
    return next((one for one in diff.without({}).differences if one.item.kind != "extra"), None)


def _anything_differs(experiment: Experiment, resumed: Sequence[Resumed]) -> bool:
    quiet = Noise({}, None, {}, None, repeated=False)
    cases = [case_of(experiment, run, quiet, Policy(), measure=False)[0] for run in resumed]
    return any(not case.goes_on_exactly for case in cases)


def confirmed(
    experiment: Experiment, run: Resumed, case: Case, cause: Cause | None, noise: Noise, *, against: str = REFERENCE
) -> Case:
    """The case, or one without what follows where the resumed run does not repeat what it differs in: that is chance.

    What is wrong right after the load needs no confirmation; what was measured beyond the floor has been made again.
    """
    sure = cause is not None and cause.confidence == "certain"
    first = case.first
    if first is None or sure or run.trace is None or case.trajectory is None or case.floor is not None:
        return case
    again = _again(experiment, run, first.step)
    if again is None or repeats_itself(run.trace, again, case.trajectory):
        return case
    if against == REFERENCE and noise.first is None and _never_agrees(experiment, run, first, noise):
        return case
    return by_chance(case, first)


def by_chance(case: Case, first: Difference) -> Case:
    """The case of a resumed run that does not repeat its first difference, without what follows from that."""
    assert case.trajectory is not None
    chance = (
        f"the run resumed after step {case.step} does not repeat itself: made again from the same checkpoint it "
        f"differs from step {first.step} on, so what differs may be chance"
    )
    return replace(case, trajectory=replace(case.trajectory, differences=()), noise=first, chance=chance, whole=False)


def _again(experiment: Experiment, run: Resumed, step: int) -> Trace | None:
    """Another run from the same checkpoint, at least up to a step; the second pass may have made it."""
    once_more = f"{run.name}-again-once-more"
    for name in (f"{run.name}-again", once_more):
        made = experiment.traces.get(name)
        if made is not None and (step, STEP) in made.moments:
            return made
    return experiment.once_more({run.name: once_more}, step).get(once_more)


def repeats_itself(run: Trace, again: Trace, diff: TraceDiff) -> bool:
    """Whether what differs first is in the second run as it was in the first one."""
    for one in diff.at_first_stage():
        item = one.item if one.right is None or run.sample(one.step, STEP, one.item) is not None else None
        if item is None:
            continue  # a group that is numbered otherwise on the left
        pair = run.sample(one.step, STEP, item), again.sample(one.step, STEP, item)
        if (pair[0] is None) != (pair[1] is None) or (pair[0] and pair[1] and not pair[0].same_as(pair[1])):
            return False
    return True


def _never_agrees(experiment: Experiment, run: Resumed, first: Difference, noise: Noise) -> bool:
    """Whether every run without a resume agrees up to the difference, and every resumed one differs by then.

    Then it is no chance: what follows the resume is drawn anew in each process, from what nobody seeds.
    """
    reference = experiment.traces[REFERENCE]
    resumed = list(filter(None, [_again(experiment, run, first.step)]))

    def parts(trace: Trace) -> bool:
        diff = compare_traces(reference, trace, first=run.step + 1, last=first.step).without(noise.floor)
        return diff.first is not None and diff.first.order <= first.order

    if not all(map(parts, resumed)):
        return False
    whole: list[Trace] = []
    for number in range(MORE):
        names = {
            run.name: f"{run.name}-again-more-{number}",
            REFERENCE: f"{REFERENCE}-again-more-for-{run.name}-{number}",
        }
        made = experiment.once_more(names, first.step)
        resumed += [made[names[run.name]]] if names[run.name] in made else []
        whole += [made[names[REFERENCE]]] if names[REFERENCE] in made else []
    return len(resumed) > MORE and all(map(parts, resumed)) and not any(map(parts, whole))


def with_chance(noise: Noise, cases: Sequence[Case]) -> Noise:
    """The noise with what was seen to be chance, or may be noise, in the earliest resumed run."""
    seen = [(case.noise.order, case) for case in cases if case.chance and case.noise is not None]
    if not seen:
        return noise
    order, case = min(seen, key=lambda pair: pair[0])
    if noise.first is None:
        return replace(noise, first=case.noise, chance=case.chance)
    # From the first noise on nothing was judged anyway, unless it was held against a floor.
    is_news = case.floor is not None or order < noise.first.order
    return replace(noise, open=case.noise, chance=case.chance) if is_news else noise


def with_what_is_noisy(case: Case, experiment: Experiment, noise: Noise) -> Case:
    """The case with why equal runs part: the operations that torch names, the generators that nobody seeds."""
    if noise.first is None:
        return case
    operations = operations_of(experiment) if noise.only_numeric else ()
    return replace(
        case,
        noise=noise.open or noise.first,
        operations=operations,
        noisy_generators=noisy_generators(experiment, noise),
    )


def operations_of(experiment: Experiment) -> tuple[str, ...]:
    """The operations of the run that torch says are not deterministic; () where it names none, or raised."""
    name = f"{REFERENCE}-again-to-name-operations"
    experiment.once_more({REFERENCE: name}, warn=True)
    found = experiment.outcomes[name].facts.get("operations", [])
    return tuple(str(one) for one in found)


def noisy_generators(experiment: Experiment, noise: Noise) -> tuple[str, ...]:
    """The generators that differ between equal runs and that the run draws from, the first to differ first."""
    if noise.first is None:
        return ()
    reference = experiment.traces[REFERENCE]
    drawn = compare_traces(reference, reference).drawn
    found = sorted((step, item.name) for item, step in noise.floor.items() if item.kind == "rng")
    return tuple(name for _, name in found if name in drawn)


def noise_part(noise: Noise, cases: Sequence[Case]) -> dict[str, Json]:
    """The floor as data: where equal runs part, how far, by which factor a resumed run may be further away."""
    first = noise.first
    floors = [(case, case.floor) for case in cases if case.floor is not None]
    of_rounding = {name for case in cases for name in case.rounding} | {
        item.name for _, floor in floors for _, item in floor.resumed if item.name in floor.rounding
    }
    rounding: list[Json] = [*sorted(of_rounding)]
    part: dict[str, Json] = {
        "repeated": noise.repeated,
        "first": {"step": first.step, "stage": first.stage} if first is not None else None,
        "differing": [
            {"section": item.kind, "name": item.name, "key": item.key or None, "first_step": step}
            for item, step in sorted(noise.floor.items(), key=lambda pair: (pair[1], pair[0]))[:LISTED]
        ],
        "rounding_gradients": rounding,
        "calibration": None,
    }
    if floors:
        from ckptcheck.experiment.noise import FLOOR_FACTOR

        rows: list[dict[str, Json]] = [
            {"run": case.run, "step": step, "section": item.kind, "name": item.name, "key": item.key or None,
             "rel_l2": gap.rel_l2, "max_abs": gap.max_abs, "allowed": floor.allowed(step, item),
             "resumed": own.rel_l2 if (own := floor.resumed.get((step, item))) is not None else 0.0}
            for case, floor in floors for (step, item), gap in floor.equal.items() if gap.rel_l2
        ]  # fmt: skip
        rows.sort(key=lambda row: (-float(str(row["rel_l2"])), str(row["name"])))
        part["calibration"] = {
            "measured": "exact, element by element, in another run of each",
            "repeats": floors[0][1].repeats,
            "factor": FLOOR_FACTOR,
            "tensors": len(rows),
            "widest": [*rows[:LISTED]],
        }
    return part

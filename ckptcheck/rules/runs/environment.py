"""CK6, what is around the training: noise between equal runs, another environment, gradients of rounding noise."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Final, TypeAlias

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.comparison.traces import FLAGS, Difference
from ckptcheck.experiment.noise import NUMERIC
from ckptcheck.finding import Finding, Json, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.words import at_load, generators, kept, names, place_of, shown
from ckptcheck.state.stages import STAGE_ORDER

Changes: TypeAlias = Mapping[str, tuple[Json, Json]]

OF_ROUNDING: Final = frozenset({"CK606", "CK607", "CK611", "CK614"})
"""Codes of numeric differences, beside which gradients of rounding noise are told."""
ROUNDING: Final = 1e-2
"""The relative distance that another order of summing may make where two runs part: bfloat16 has 8 bits."""
FOLLOWS_THE_LOSS: Final = ("best", "num_bad_epochs")
"""Entries of a schedule that follows what kernels compute."""


@rule("CK611", "nondeterministic-baseline", Severity.WARNING, "saving")
def nondeterministic_baseline(case: Case) -> Iterator[Evidence]:
    """Two runs without any resume differ from each other: there is nothing to hold a resumed run against.

    Why: a difference after the resume may then be chance.
    Example: a generator that nobody seeds, a seed taken from the clock, a kernel that is not deterministic.
    Fix: seed torch, numpy and python (a target has `ctx.seed`), and have torch use deterministic algorithms
    (--deterministic does that for a target).
    Limits: what was equal in both runs is still judged, up to the step and stage where they part. Noise that comes
    once in many runs may be seen in the resumed run alone: it is then made again, and that tells.
    """
    one = case.noise
    if one is None:
        return
    said = case.chance or f"two equal runs without a resume differ from step {one.step} on"
    numbers: dict[str, Json] = {"stage": one.stage}
    if case.noisy_generators:
        numbers["generators"] = kept(case.noisy_generators)
    if case.operations:
        numbers["operations"] = kept(case.operations)
        said += f"; torch has no deterministic implementation of {names(case.operations)}"
    yield Evidence(
        f"{said}, first in {one.stage}: {_described(one)}" if not case.operations else
        f"{said}; the first to differ is {_described(one)}, in {one.stage}",
        place_of(one),
        numbers,
        _advice(one, case),
    )  # fmt: skip


def _described(one: Difference) -> str:
    item = one.item
    return f"{item.name}.{item.key}" if item.name and item.key else item.name or item.key or item.kind


def _advice(one: Difference, case: Case) -> str:
    if case.chance:
        return "make it again with more --repeats, to see how often equal runs part; then mend that first"
    if one.step == 0 or STAGE_ORDER[one.stage] <= STAGE_ORDER["inputs"]:
        which = f": {generators(case.noisy_generators)} differ" if case.noisy_generators else ""
        if case.commands:
            return f"seed torch, numpy and python's random at the start of the script, before the model is built{which}"
        return f"seed torch, numpy and python's random from ctx.seed in your factory, before the model is built{which}"
    instead = f" in place of {names(case.operations)} use what is deterministic;" if case.operations else ""
    if case.commands:
        return (
            f"call torch.use_deterministic_algorithms(True);{instead} if that is not possible, use --policy state-exact"
        )
    return f"run again with --deterministic;{instead} if that is not possible here, use --policy state-exact"


@rule("CK614", "environment-changed", Severity.WARNING, "load")
def environment_changed(case: Case) -> Iterator[Evidence]:
    """Threads, implementation flags, compilation, versions or switches of torch differ between the two runs.

    Why: another thread count or another kernel sums in another order; the last bits differ and grow.
    Example: `torch.set_num_threads` called in one run only; `fused=True` or `torch.compile` on one side.
    Fix: run both with the same settings.
    Limits: hardware that differs behind equal names is not seen. It is the cause only where what differs is computed
    by kernels and nothing at the load explains it.
    """
    changed = environment_changes(case)
    if not changed:
        return
    spelled = [f"{name} was {was}, is {now}" for name, (was, now) in changed.items()]
    follows = "" if not explains(case) else "; what follows differs in numbers only"
    yield Evidence(
        f"the environment changed: {names(spelled)}{follows}",
        at_load(case.step, key=next(iter(changed))),
        {name: [was, now] for name, (was, now) in changed.items()},
        "give both runs the same settings",
    )


def environment_changes(case: Case) -> Changes:
    """What surrounds the two runs and differs, as (saved, live) by name; what one side does not tell is left out."""
    if case.load is None:
        return {}
    left, right = case.load.left.flags, case.load.right.flags
    found: dict[str, tuple[Json, Json]] = {
        name: (left[name], right[name]) for name in left if name in right and left[name] != right[name]
    }
    for one in case.loaded("hyper"):
        if _chooses_a_kernel(one):
            found.setdefault(one.key, (shown(one.left), shown(one.right)))
    return found


def _chooses_a_kernel(one: EntryDifference) -> bool:
    return one.key in FLAGS and one.left is not None and one.right is not None


def explains(case: Case) -> bool:
    """Whether another environment is there, and what differs first is what kernels compute, in its last digits.

    Later on distance says nothing; where the two part, rounding is all that another kernel can do.
    """
    first = case.first
    if first is None or first.stage not in NUMERIC or case.trajectory is None or not environment_changes(case):
        return False
    gaps = [_gap(case, one) for one in case.trajectory.at_first_stage() if one.item.name not in case.rounding]
    return median(gaps) <= ROUNDING if gaps else True


def _gap(case: Case, one: Difference) -> float:
    """How far a tensor or number is off, relative to the left: as measured, or at least by its norm."""
    measured = case.measured.get((one.step, one.item))
    if measured is not None:
        return measured.rel_l2 if measured.rel_l2 is not None else math.inf
    sizes = [side.norm if side.norm is not None else side.value for side in (one.left, one.right) if side is not None]
    numbers = [float(size) for size in sizes if isinstance(size, int | float)]
    if len(numbers) < len(("left", "right")) or not numbers[0]:
        return math.inf
    return abs(numbers[1] - numbers[0]) / abs(numbers[0])


def without_numbers(case: Case) -> Case:
    """The case without what kernels compute, where another environment explains it: the rest is a fault beside it.

    Rates that follow the loss are left out with it, and what stands in `extra`, which may hold a loss.
    """
    assert case.trajectory is not None
    schedule = [one for one in case.trajectory.differences if one.stage == "schedule"]
    follows = any(one.item.name.endswith(FOLLOWS_THE_LOSS) for one in schedule)
    out = NUMERIC | {"extra"} | ({"schedule", "hyperparameters"} if follows else set())
    differences = tuple(one for one in case.trajectory.differences if one.stage not in out)
    return replace(case, trajectory=replace(case.trajectory, differences=differences))


def with_rounding(case: Case, one: Finding) -> Finding:
    """A finding of numeric differences with what is known of gradients that are rounding noise."""
    if not case.rounding or one.code not in OF_ROUNDING:
        return one
    said = (
        f"{one.message}; the true gradient of {names(case.rounding)} is zero and what is there is rounding noise: "
        "distance there says nothing"
    )
    return replace(one, message=said, evidence={**one.evidence, "rounding_gradients": kept(case.rounding)})


RULES = (
    nondeterministic_baseline,
    environment_changed,
)

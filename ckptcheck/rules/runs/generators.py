"""CK6: the random generators that a load must bring back."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.comparison.traces import Difference
from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.origin import (
    drawn_otherwise_within,
    left_alone,
    of_other_step,
    repeated_step,
    step_of_other_inputs,
    where_it_stands,
    where_step_left_it,
)
from ckptcheck.rules.words import at_load, generators, kept, place_of

DRAWS_IN_ONE_RUN: Final = (
    "look for draws that happen in one run only: a new data iterator, a layer that is built, an evaluation"
)


@rule("CK603", "rng-diverged", Severity.ERROR, "load")
def rng_diverged(case: Case) -> Iterator[Evidence]:
    """A random generator is in another state than in the uninterrupted run, and the training draws from it.

    Why: dropout, noise, augmentation and shuffling differ from the first resumed step on.
    Example: the generators are not in the checkpoint, or something draws after they were restored.
    Fix: restore the generators last.
    Limits: a generator that nothing draws from within the compared steps is a warning.
    """
    drawn = case.trajectory.drawn if case.trajectory is not None else frozenset()
    differing = [one.name for one in case.loaded("rng")
                 if (one.name in drawn or case.trajectory is None) and one.name not in case.idle_generators
                 and not of_other_step(case, one)]  # fmt: skip
    found = {name: step for name in differing if (step := where_it_stands(case, name)) is not None}
    if differing and case.seeded:
        yield Evidence(
            f"{generators(differing)} {'is' if len(differing) == 1 else 'are'} in another state after "
            f"the load than when it was saved, and the steps that follow draw from it"
            f"{_stands(found)}{_batch_seen(case) or _first_effect(case)}",
            at_load(case.step, key=differing[0]),
            {"generators": kept(differing), "where_step_began": dict(found), "first_effect_step": _effect_step(case)},
            "save the generators' states and restore them at the very end of your load" + _or_the_order(case),
        )
    elif case.first is not None and case.first.stage == "rng":
        first = case.first
        yield Evidence(
            f"the {first.item.name} generator differs from the start of step {first.step} on: one run drew more often",
            place_of(first),
            {"generators": [first.item.name]},
            DRAWS_IN_ONE_RUN,
        )
    elif case.first is not None and case.first.stage in ("loss", "grad"):
        yield from _drew_otherwise_within(case, case.first)


def _stands(found: Mapping[str, int]) -> str:
    """For a sentence on generators: where in the uninterrupted run they have been in this state."""
    said = [f"the {name} generator is where step {step} of the uninterrupted run began" for name, step in found.items()]
    return f"; {' and '.join(said)}" if said else ""


def _batch_seen(case: Case) -> str:
    """For a sentence on generators: whose batch the first step with other inputs saw, which they may have drawn."""
    step, seen = step_of_other_inputs(case), repeated_step(case)
    if not case.commands or step is None:
        return ""
    return f"; from step {step} on its batches are others{f': it saw the batch of step {seen}' if seen else ''}"


def _effect(case: Case) -> Difference | None:
    """What differs first beside generators."""
    return (
        next((one for one in case.trajectory.differences if one.item.kind != "rng"), None) if case.trajectory else None
    )


def _effect_step(case: Case) -> int | None:
    effect = _effect(case)
    return effect.step if effect is not None else None


def _first_effect(case: Case) -> str:
    """For a sentence on generators: the step that shows it first, where that is not the first step after the load."""
    effect = _effect(case)
    if effect is None or effect.step <= case.step + 1:
        return ""
    what = {"inputs": "the inputs differ", "loss": "the loss differs"}.get(effect.stage, f"{effect.stage} differs")
    return f"; that shows from step {effect.step} on, where {what} first"


def _or_the_order(case: Case) -> str:
    """For a fix of generators that the load may have restored: what else draws before the first step."""
    if not case.commands or left_alone(case):
        return ""
    if step_of_other_inputs(case) is None:
        return "; where it does so, look for what draws between there and the first step"
    return (
        "; where it does so, a loader has drawn another order since: in the middle of an epoch save the place in the "
        "data, and the generator as it was when the epoch began (CK604)"
    )


def _drew_otherwise_within(case: Case, first: Difference) -> Iterator[Evidence]:
    """What CK603 says where a step draws more often in one run."""
    drew = drawn_otherwise_within(case, first)
    if drew:
        left = where_step_left_it(case, first.step, drew[0])
        seen = f"; the resumed run leaves it where step {left} of the uninterrupted run left it" if left else ""
        yield Evidence(
            f"within step {first.step} one run drew {'otherwise' if left else 'more often'} from the "
            f"{' and '.join(drew)} generator{seen}",
            Place(step=first.step, stage=first.stage, key=drew[0]),
            {"generators": kept(drew), "left_as_by_step": left},
            DRAWS_IN_ONE_RUN,
        )


RULES = (rng_diverged,)

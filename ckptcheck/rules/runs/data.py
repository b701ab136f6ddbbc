"""CK6: the place in the data that a load must bring back."""

from collections.abc import Iterator

from ckptcheck.finding import Json, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.calls import calls_apart
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.origin import of_other_step, repeated_step, step_of_other_inputs
from ckptcheck.rules.words import at_load, differ, generators, kept, place_of, shown


@rule("CK604", "data-diverged", Severity.ERROR, "load")
def data_diverged(case: Case) -> Iterator[Evidence]:
    """The resumed run sees other data than the uninterrupted one.

    Why: samples are seen twice or never.
    Example: the loader starts again at its first batch.
    Fix: save the data position with its generator, or derive it from the step number.
    Limits: an input that never reaches a module of the model is not seen. Where one run only calls the model more
    often in a step, the data may be the same: then it is CK612, or CK610.
    """
    entries = [one for one in case.loaded("data")
               if (case.persists("data") or case.persists("inputs")) and not of_other_step(case, one)]  # fmt: skip
    called = calls_apart(case)
    inputs = [one for one in case.trajectory.at_first_stage() if one.stage == "inputs"] if case.trajectory else []
    inputs, first = ([], None) if called else (inputs, case.first)
    if not entries and not inputs and not (first is not None and first.stage == "data"):
        return
    step, seen = step_of_other_inputs(case), repeated_step(case)
    came = f"; step {step} saw the batch of step {seen}" if seen is not None else ""
    numbers: dict[str, Json] = {"batch_of_step": seen, "entries": kept(one.name for one in entries)}
    fix = "save the data's position and generator and restore them, or derive the batch from the step number"
    if entries:
        one = entries[0]
        message = (
            f"the data position differs after the load: {one.name} was {shown(one.left)}, is {shown(one.right)}{came}"
        )
        yield Evidence(message, at_load(case.step, key=one.name), numbers, fix)
    elif first is not None:
        message = f"other data from step {first.step} on{came}"
        idle = [name for name, since in case.idle_generators.items() if since <= first.step]
        if inputs and idle:
            numbers["generators"] = kept(idle)
            message += _drawn_before(idle, seen)
            fix += (
                "; an order of samples that is drawn once an epoch needs the generator as it was when the epoch began"
            )
        yield Evidence(message, place_of(first), numbers, fix)


def _drawn_before(idle: list[str], seen: int | None) -> str:
    """For a sentence on other data: generators that differ too, and why they are not the cause."""
    why = f"but {'is' if len(idle) == 1 else 'are'} not where step {seen} of the uninterrupted run began"
    if seen is None:
        why = "but the uninterrupted run draws nothing from there for this batch"
    return f"; {generators(idle)} {differ(idle)} too (CK603), {why}: the place in the data was lost"


RULES = (data_diverged,)

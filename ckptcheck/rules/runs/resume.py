"""CK6, what a load must bring back: schedule, generators, data, buffers, scaler."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.comparison.traces import Difference
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.binding import constructed_late
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.forward import forward_apart
from ckptcheck.rules.runs.origin import (
    drawn_otherwise_within,
    left_alone,
    of_other_step,
    rate_by_hand,
    repeated_step,
    shifted_rate,
    step_of_other_inputs,
)
from ckptcheck.rules.words import at_load, brief, count, differ, generators, kept, names, place_of, shown

Entries: TypeAlias = tuple[EntryDifference, ...]


DRAWS_IN_ONE_RUN: Final = (
    "look for draws that happen in one run only: a new data iterator, a layer that is built, an evaluation"
)


@rule("CK602", "schedule-diverged", Severity.ERROR, "load")
def schedule_diverged(case: Case) -> Iterator[Evidence]:
    """The learning-rate schedule is at another place, or its rates differ.

    Why: warm-up runs twice, or decay is skipped; the weights show it only later.
    Example: the scheduler's state is not saved, or the scheduler is built after the optimizer was loaded.
    Fix: build the scheduler before anything is loaded, and load its state.
    Limits: a longer horizon set on purpose is a difference all the same.
    """
    entries = case.loaded("schedule")
    rates = [one for one in case.loaded("hyper") if one.key == "lr"]
    relevant = case.persists("schedule") or case.persists("hyper")
    by_hand = rate_by_hand(case)
    if by_hand is not None:
        fix = "save the number of completed steps and go on counting from it: the script computes its rate from that"
        yield replace(_rate_evidence(case, by_hand), fix=fix)
        return
    if case.other_step is None and relevant and (entries or constructed_late(case)):
        numbers = _schedule_numbers(case, entries, rates)
        group, optimizer = (rates[0].group, rates[0].optimizer) if rates else (None, None)
        yield Evidence(
            _schedule_message(numbers, bool(entries)),
            at_load(case.step, key=entries[0].name if entries else "lr", group=group, optimizer=optimizer),
            numbers,
            "build the scheduler before loading, then load the optimizer and the scheduler",
        )
        return
    first = case.first
    by_rate = first is not None and first.item.kind == "hyper" and first.item.key == "lr" and not rates
    if first is not None and (by_rate or first.stage == "schedule"):
        yield _rate_evidence(case, first)


def _schedule_numbers(case: Case, entries: Entries, rates: list[EntryDifference]) -> dict[str, Json]:
    numbers: dict[str, Json] = {"entries": kept(one.name for one in entries)}
    place = next((one for one in entries if one.name.endswith("last_epoch")), None)
    if place is not None:
        saved, loaded = shown(place.left), shown(place.right)
        numbers |= {"saved_position": saved, "loaded_position": loaded}
        if isinstance(saved, int) and isinstance(loaded, int):
            numbers["offset"] = loaded - saved
    last_rate = next((one for one in entries if one.name.endswith("_last_lr[0]")), None)
    told = rates[0] if rates else last_rate
    if told is not None:
        numbers |= {"saved_rate": shown(told.left), "loaded_rate": shown(told.right)}
    later = next((one for one in _later(case, "hyper") if one.item.key == "lr"), None)
    if later is not None:
        numbers |= {"left_rate": shown(later.left), "right_rate": shown(later.right), "rate_at_step": later.step}
    return numbers


def _schedule_message(numbers: dict[str, Json], state_differs: bool) -> str:
    rates = ""
    if "saved_rate" in numbers:
        saved, loaded = brief(numbers["saved_rate"]), brief(numbers["loaded_rate"])
        rates = f"; its rate was {saved} when saved and is {loaded} after the load"
    if "left_rate" in numbers:
        rates += (
            f"; at step {numbers['rate_at_step']} the uninterrupted run has rate {brief(numbers['left_rate'])}, "
            f"the resumed one {brief(numbers['right_rate'])}"
        )
    if not state_differs:
        return f"the schedule was built after the optimizer was loaded, and its constructor moved the rate{rates}"
    offset = numbers.get("offset")
    if not isinstance(offset, int) or offset == 0:
        entries = numbers["entries"] if isinstance(numbers["entries"], list) else []
        return f"the schedule differs after the load in {names(map(str, entries))}{rates}"
    steps = f"{abs(offset)} step{'' if abs(offset) == 1 else 's'}"
    return f"the schedule is {steps} {'behind' if offset < 0 else 'ahead'} after the load{rates}"


def _rate_evidence(case: Case, first: Difference) -> Evidence:
    offset = shifted_rate(case, first)
    where = f", which is the rate of step {first.step + offset}" if offset else ""
    return Evidence(
        f"at step {first.step} {first.item.key or first.item.name} is {shown(first.left)} in the uninterrupted run and "
        f"{shown(first.right)} in the resumed one{where}",
        place_of(first),
        {"left_rate": shown(first.left), "right_rate": shown(first.right), "offset": offset},
        "save the scheduler's state and load it, or compute the rate from the step number",
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
    if differing and case.seeded:
        yield Evidence(
            f"{generators(differing)} {'is' if len(differing) == 1 else 'are'} in another state after "
            f"the load than when it was saved, and the steps that follow draw from it{_batch_seen(case)}",
            at_load(case.step, key=differing[0]),
            {"generators": kept(differing)},
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


def _batch_seen(case: Case) -> str:
    """For a sentence on generators: whose batch the first step with other inputs saw, which they may have drawn."""
    step, seen = step_of_other_inputs(case), repeated_step(case)
    if not case.commands or step is None:
        return ""
    return f"; from step {step} on its batches are others{f': it saw the batch of step {seen}' if seen else ''}"


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
        yield Evidence(
            f"within step {first.step} one run drew more often from the {' and '.join(drew)} generator",
            Place(step=first.step, stage=first.stage, key=drew[0]),
            {"generators": kept(drew)},
            DRAWS_IN_ONE_RUN,
        )


@rule("CK604", "data-diverged", Severity.ERROR, "load")
def data_diverged(case: Case) -> Iterator[Evidence]:
    """The resumed run sees other data than the uninterrupted one.

    Why: samples are seen twice or never.
    Example: the loader starts again at its first batch.
    Fix: save the data position with its generator, or derive it from the step number.
    Limits: an input that never reaches a module of the model is not seen.
    """
    entries = [one for one in case.loaded("data")
               if (case.persists("data") or case.persists("inputs")) and not of_other_step(case, one)]  # fmt: skip
    inputs = [one for one in case.trajectory.at_first_stage() if one.stage == "inputs"] if case.trajectory else []
    first = case.first
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


@rule("CK605", "buffers-diverged", Severity.ERROR, "load")
def buffers_diverged(case: Case) -> Iterator[Evidence]:
    """Buffers differ from the uninterrupted run.

    Why: BatchNorm statistics decide what evaluation and export compute; training in train mode never shows it.
    Example: only `named_parameters()` are saved.
    Fix: save `state_dict()`, which has the buffers.
    Limits: buffers that are not persistent have to be rebuilt the same way.
    """
    entries = case.loaded("buffer")
    if entries and case.other_step is None:
        found = [one.name for one in entries]
        yield Evidence(
            f"{count(found, 'buffer')} {differ(found)} after the load: {names(found)}",
            at_load(case.step, key=found[0]),
            {"buffers": kept(found), "saved": shown(entries[0].left), "loaded": shown(entries[0].right)},
            "save model.state_dict(), not named_parameters(), and load it strictly",
        )
    elif case.first is not None and case.first.stage == "buffers" and forward_apart(case) is None:
        yield Evidence(
            f"buffer {case.first.item.name} differs first, at step {case.first.step}, with the same inputs",
            place_of(case.first),
            {"buffers": [case.first.item.name]},
            "look for modules in another mode, or buffers moved outside the forward pass",
        )


@rule("CK608", "scaler-diverged", Severity.ERROR, "load")
def scaler_diverged(case: Case) -> Iterator[Evidence]:
    """The gradient scaler's scale or growth counter differs, or an update was skipped in one run only.

    Why: a fresh scaler starts too high, overflows, and skips updates and with them the schedule.
    Example: `scaler.state_dict()` is not saved.
    Fix: save and load it.
    Limits: in float32 it never shows in the weights.
    """
    entries = case.loaded("scaler")
    if entries and case.other_step is None:
        spelled = [f"{one.name} was {shown(one.left)}, is {shown(one.right)}" for one in entries]
        yield Evidence(
            f"the gradient scaler differs after the load: {names(spelled)}",
            at_load(case.step, key=entries[0].name),
            {
                "saved": {one.name: shown(one.left) for one in entries},
                "loaded": {one.name: shown(one.right) for one in entries},
            },
            "save scaler.state_dict() and load it",
        )
    elif case.first is not None and (
        case.first.item.kind == "scaler" or (case.first.item.kind == "updates" and case.has_scaler)
    ):
        first = case.first
        what = "number of updates" if first.item.kind == "updates" else first.item.name
        yield Evidence(
            f"at step {first.step} the {what} is {shown(first.left)} in the uninterrupted run and "
            f"{shown(first.right)} in the resumed one",
            place_of(first),
            {"left": shown(first.left), "right": shown(first.right)},
            "look for an overflow, or an accumulation counter, that only one run has",
        )


def _later(case: Case, kind: str) -> list[Difference]:
    return [one for one in case.trajectory.differences if one.item.kind == kind] if case.trajectory is not None else []


RULES = (
    schedule_diverged,
    rng_diverged,
    data_diverged,
    buffers_diverged,
    scaler_diverged,
)

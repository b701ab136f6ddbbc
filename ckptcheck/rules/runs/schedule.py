"""CK6: the learning-rate schedule that a load must bring back."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from ckptcheck.comparison.states import EntryDifference
from ckptcheck.comparison.traces import Difference
from ckptcheck.finding import Json, Severity
from ckptcheck.rules.rule import Evidence, rule
from ckptcheck.rules.runs.binding import constructed_late
from ckptcheck.rules.runs.case import Case
from ckptcheck.rules.runs.origin import rate_by_hand, shifted_rate
from ckptcheck.rules.words import at_load, brief, kept, names, place_of, shown

Entries: TypeAlias = tuple[EntryDifference, ...]

INNER: Final = "_schedulers["
"""In the entry of a schedule that another one is composed of (SequentialLR, ChainedScheduler)."""


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
    places = [one for one in entries if one.name.endswith("last_epoch")]
    if places:
        # The place of the whole schedule before those of schedules that it is composed of.
        place = min(places, key=lambda one: INNER in one.name)
        saved, loaded = shown(place.left), shown(place.right)
        numbers |= {"position": place.name, "saved_position": saved, "loaded_position": loaded}
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
    position = str(numbers["position"])
    which = f"{position.rpartition('.')[0]} of the composed schedule" if INNER in position else "the schedule"
    return f"{which} is {steps} {'behind' if offset < 0 else 'ahead'} after the load{rates}"


def _rate_evidence(case: Case, first: Difference) -> Evidence:
    offset = shifted_rate(case, first)
    where = f", which is the rate of step {first.step + offset}" if offset else ""
    return Evidence(
        f"at step {first.step} {first.item.key or first.item.name} is {shown(first.left)} in the uninterrupted run and "
        f"{shown(first.right)} in the resumed one{where}",
        place_of(first),
        {"left_rate": shown(first.left), "right_rate": shown(first.right), "offset": offset},
        "save the scheduler's state and load it, or compute the rate from the step number"
        if _has_schedule(case)
        else "no scheduler is declared, so the step sets the rate: save what it decides that by (a count of steps, the "
        "milestones that are left), or compute the rate from the step number",
    )


def _has_schedule(case: Case) -> bool:
    sides = (case.load.left, case.load.right) if case.load is not None else ()
    return case.load is None or any(side.sections.get("schedule") for side in sides)


def _later(case: Case, kind: str) -> list[Difference]:
    return [one for one in case.trajectory.differences if one.item.kind == kind] if case.trajectory is not None else []


RULES = (schedule_diverged,)

"""CK3 and CK6, as far as one checkpoint tells: a schedule that does not stand where the training does."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.rule import Evidence, Rule, Unjudged, also
from ckptcheck.rules.runs.binding import hyperparameter_changed
from ckptcheck.rules.runs.schedule import schedule_diverged
from ckptcheck.rules.stored import loops, schedule_fields
from ckptcheck.rules.stored.schedulers import Scheduler, active, expected_rates, schedulers_of
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.words import brief, count_of
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Optimizer, TrainingState

RELATIVE: Final = 1e-4
ABSOLUTE: Final = 1e-6
"""Rates closer than this, the second times the base rate, are one: products and rates in fp32 round."""


@also(hyperparameter_changed)
def rates_are_the_schedules(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A group's learning rate is not the one that its schedule set last."""
    state = stored.checkpoint.state
    keeping = [one for one in schedulers_of(state) if one.rates() and (one.position or 0) > 0]
    if not keeping or not state.optimizers or stored.purpose is not Purpose.RESUME:
        return
    if len(keeping) > 1 or len(state.optimizers) > 1:
        if not all(any(_same(one.rates(), _rates(other)) for other in state.optimizers) for one in keeping):
            yield Unjudged("nothing tells which of several schedules sets which optimizer's rate")
        return
    scheduler, optimizer = keeping[0], state.optimizers[0]
    rates = scheduler.rates()
    for group, (held, last) in enumerate(zip(_rates(optimizer), rates, strict=False)):
        if held is not None and not _close(held, last, max(map(abs, rates))):
            yield Evidence(
                f"group {group} of the optimizer has lr {brief(held)}, its schedule set {brief(last)} last: after a "
                "resume the schedule goes on from the group's, or puts its own in its place, as its class does",
                Place(optimizer=0, group=group, key="lr"),
                {"group_lr": held, "schedule_lr": last, "ratio": held / last if last else None},
                "build the scheduler before the optimizer is loaded; to change a rate change the schedule's base too",
            )


def _rates(optimizer: Optimizer) -> list[float | None]:
    return [finite_number(one.hyperparameters.get("lr")) for one in optimizer.groups]


def _same(rates: list[float], held: list[float | None]) -> bool:
    return len(rates) == len(held) and all(
        one is not None and _close(one, last, max(map(abs, rates))) for one, last in zip(held, rates, strict=True)
    )


def _close(left: float, right: float, base: float) -> bool:
    return not abs(left - right) > max(RELATIVE * max(abs(left), abs(right)), ABSOLUTE * base)


@also(schedule_diverged, severity=Severity.WARNING)
def schedule_fits(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A schedule's state lacks what its formula needs, or does not stand where the training does."""
    if stored.purpose is not Purpose.RESUME:
        return
    schedulers = schedulers_of(stored.checkpoint.state)
    for one in schedulers:
        yield from schedule_fields.lacking(one)
        yield from schedule_fields.wrong_keys(one)
        yield from schedule_fields.sequence(one)
        yield from _end(one)
    if len(schedulers) == 1:
        yield from _formula(schedulers[0])
        yield from _position(stored, schedulers[0])
    elif schedulers:
        yield Unjudged(f"{len(schedulers)} schedules may set one rate in turn: their formulas were not held against it")


def _formula(scheduler: Scheduler) -> Iterator[Evidence]:
    """The rate is not that of the schedule's own formula at its own position."""
    one = active(scheduler)
    if one is None or one.row is None:
        return
    base = max(map(abs, one.rates("base_lrs")), default=0.0)
    for group, (expected, last) in enumerate(expected_rates(one)):
        if not _close(expected, last, base):
            yield Evidence(
                f"the schedule ({one.row.name}) stands at {one.position}, where its rate for group {group} is "
                f"{brief(expected)}; it set {brief(last)}: its constructor or other code moved the rate on the way",
                Place(group=group, key=f"{one.place}_last_lr"),
                {"class": one.row.name, "position": one.position, "expected": expected, "recorded": last,
                 "ratio": last / expected if expected else None},
                "build the scheduler before anything is loaded, then load the optimizer and the scheduler",
            )  # fmt: skip
            return


def _end(scheduler: Scheduler) -> Iterator[Evidence]:
    """A schedule that raises where it is stepped beyond its end."""
    row, position = scheduler.row, scheduler.position
    end = scheduler.numbers.get(row.end) if row is not None and row.end else None
    if row is None or end is None or position is None or position < end:
        return
    beyond = position > end
    yield Evidence(
        f"the schedule ({row.name}) stands at {position} and {'ended' if beyond else 'ends'} at {row.end} {end:g}: "
        "its next step raises, so that a longer training needs another schedule",
        Place(key=f"{scheduler.place}last_epoch"),
        {"class": row.name, "position": position, "end": end},
        "build the schedule for the whole length; the loaded state brings the old one back",
        None if beyond else Severity.INFO,
    )


def _position(stored: Stored, scheduler: Scheduler) -> Iterator[Evidence]:
    """Where the schedule stands against the steps, as far as the writer says how the two belong together."""
    position, state = scheduler.position, stored.checkpoint.state
    if position is None or "num_bad_epochs" in scheduler.fields or stored.checkpoint.convention == "accelerate":
        return
    if stored.checkpoint.convention == "hf-trainer":
        step = state.step
        skipping = "scaler" in state.sections
        if step is not None and (position > step or (position < step and not skipping)):
            recorded = f"the file records {stored.checkpoint.recorded_step}"
            yield _against(position, step, recorded, "the Trainer steps it once a step")
        return
    updates = _updates(state)
    if updates and position > updates and position % updates == 0:
        why = "it is stepped for each micro-batch or process, or moved again at each resume"
        recorded = f"the optimizer made {count_of(updates, 'update')}"
        yield _against(position, updates, recorded, why, Severity.INFO)
    yield from _built_anew(scheduler, position)


def _against(position: int, step: int, recorded: str, why: str, severity: Severity | None = None) -> Evidence:
    numbers: dict[str, Json] = {"position": position, "step": step, "offset": position - step}
    factor = ""
    if step and position > step and position % step == 0:
        numbers["times"], factor = position // step, f", {position // step} times as far"
    elif position and step > position and step % position == 0:
        numbers["times"], factor = position / step, f", 1/{step // position} of it"
    return Evidence(
        f"the schedule stands at {position}, and {recorded}{factor}: {why}",
        Place(key="last_epoch"),
        numbers,
        "step the schedule as often as it was made for, and load its state rather than a number",
        severity,
    )


def _updates(state: TrainingState) -> int:
    """How often the only optimizer updated its most updated parameter; 0 where that is not known."""
    if len(state.optimizers) != 1:
        return 0
    counted = (finite_number(kept.get("step")) for kept in state.optimizers[0].state.values())
    return int(max((one for one in counted if one is not None), default=0))


def _built_anew(scheduler: Scheduler, position: int) -> Iterator[Evidence]:
    """A schedule that was put at its position by its constructor has not counted its own steps up to there."""
    steps = scheduler.numbers.get("_step_count")
    if steps is None or scheduler.row is None or "T_cur" in scheduler.fields or not 0 < steps <= position:
        return
    yield Evidence(
        f"the schedule stands at {position} and counts {count_of(int(steps), 'step')} of its own: it was put there, "
        "not loaded",
        Place(key="_step_count"),
        {"position": position, "step_count": steps},
        "load the scheduler's state_dict: what else it keeps is as its constructor made it",
        Severity.INFO,
    )


RULES: Final[tuple[Rule[Stored], ...]] = (rates_are_the_schedules, schedule_fits, *loops.RULES)

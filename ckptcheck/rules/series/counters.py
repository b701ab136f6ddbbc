"""CK5 and CK6: counters that do not rise from one checkpoint of a run to the next."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from ckptcheck.comparison.series import Described
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.runs.numbers import step_counter_mismatch
from ckptcheck.rules.runs.schedule import schedule_diverged
from ckptcheck.rules.series.series import Member, Order, Series
from ckptcheck.rules.words import names

Run: TypeAlias = Sequence[tuple[Member, Described]]


@also(step_counter_mismatch)
def counters_rise(series: Series) -> Iterator[Evidence | Unjudged]:
    """The update counters of a run's optimizer fall from one checkpoint to the next, or start anew."""
    counted = 0
    for run in series.runs:
        counted += sum(1 for _, one in run if one.updates)
        restarted = _restarted(run, [one.most_updates for _, one in run], "the optimizer", "its state was not loaded")
        anew = [one for one in restarted if one.where.path not in series.with_old_optimizer]
        yield from anew
        for (left, before), (right, after) in pairwise(run):
            fallen = {name: (value, after.updates[name]) for name, value in before.updates.items()
                      if name in after.updates and after.updates[name] < value}  # fmt: skip
            told = right.name in series.with_old_optimizer or any(one.where.path == right.name for one in anew)
            if fallen and not told:
                yield _fallen(left, right, fallen, series.order)
    yield from _misnumbered(series)
    if counted < 2:
        yield Unjudged("fewer than two of the run's checkpoints hold update counters")


def _fallen(left: Member, right: Member, fallen: dict[str, tuple[float, float]], order: Order) -> Evidence:
    name, (before, after) = next(iter(fallen.items()))
    optimizer, _, parameter = name.partition("/")
    by_names = " (later by the numbers in the names; they record no steps)" if order is Order.NAMES else ""
    return Evidence(
        f"the update counter of {names(one.partition('/')[2] for one in fallen)} is {before:g} in {left.name} and "
        f"{after:g} in {right.name}, which is later{by_names}: the optimizer was started anew between them",
        Place(path=right.name, parameter=parameter, key="step", optimizer=int(optimizer)),
        {"earlier": left.name, "later": right.name, "earlier_updates": before, "later_updates": after,
         "fallen": len(fallen)},
        "resume from the earlier one and look at how the optimizer's state is loaded",
        Severity.WARNING if order is Order.NAMES else None,
    )  # fmt: skip


def _restarted(run: Run, positions: Sequence[float | None], what: str, why: str) -> Iterator[Evidence]:
    """A counter that was the step, and from one checkpoint on is the steps since an earlier one."""
    whole: dict[int, Member] = {}
    told = False
    for (member, one), position in zip(run, positions, strict=True):
        if one.step is None or position is None or not one.counts_all:
            continue
        since = whole.get(int(one.step - position))
        if position == one.step and position > 0:
            whole[one.step] = member
        elif since is not None and position > 0 and not told:
            told = True
            numbers: dict[str, Json] = {"started_anew_after": since.name, "step": one.step, "counter": position}
            yield Evidence(
                f"{what} counts {position:g} in {member.name} at step {one.step}, which are the steps since "
                f"{since.name}: it was started anew there, {why}",
                Place(path=member.name),
                {**numbers, "earlier": since.name, "later": member.name},
                f"resume from {since.name} and look at how this state is loaded",
            )


def _misnumbered(series: Series) -> Iterator[Evidence]:
    """Names that count steps as the files do, but for some."""
    unlike = series.misnumbered
    others = [one.name for one in series.members if one.described and one.described.step == one.number]
    for one, step in unlike:
        yield Evidence(
            f"{one.name} records step {step}, while {names(others)} record the step of their names",
            Place(path=one.name),
            {"checkpoint": one.name, "recorded": step, "number": one.number},
            "look at when the step is written: before or after it is counted up, or by another run",
            Severity.WARNING,
        )


@also(schedule_diverged, severity=Severity.WARNING)
def schedule_rises(series: Series) -> Iterator[Evidence | Unjudged]:
    """The schedule of a run goes back from one checkpoint to the next, or starts anew."""
    counted = 0
    for run in series.runs:
        counted += sum(1 for _, one in run if one.schedule is not None)
        positions = [None if one.schedule is None else float(one.schedule) for _, one in run]
        anew = list(_restarted(run, positions, "the schedule", "its state was not loaded"))
        yield from anew
        for (left, before), (right, after) in pairwise(run) if series.order is Order.STEPS else ():
            told = any(one.where.path == right.name for one in anew)
            if before.schedule is not None and _is_behind(after, before.schedule) and not told:
                yield Evidence(
                    f"the schedule is at {before.schedule} in {left.name} and at {after.schedule} in {right.name}, "
                    "which is later: it was started anew between them",
                    Place(path=right.name, key="last_epoch"),
                    {"earlier": left.name, "later": right.name, "earlier_position": before.schedule,
                     "later_position": after.schedule},
                    "load the scheduler's state, or compute the rate from the step",
                )  # fmt: skip
    if counted < 2:
        yield Unjudged("fewer than two of the run's checkpoints hold one schedule")


def _is_behind(one: Described, position: int) -> bool:
    return one.schedule is not None and one.schedule < position


RULES: Final = (counters_rise, schedule_rises)

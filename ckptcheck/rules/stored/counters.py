"""CK505 on one checkpoint: counters that no optimizer can have counted."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.survey import Survey
from ckptcheck.errors import CheckpointError
from ckptcheck.finding import Json, Place, Severity
from ckptcheck.optimizers.row import Kind
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.runs import numbers as runs
from ckptcheck.rules.stored.stored import Stored
from ckptcheck.rules.words import kept, names
from ckptcheck.state.scalars import number_in
from ckptcheck.state.training_state import Entry
from ckptcheck.trace.items import Item

_STEP: Final = "step"
_GATHERED: Final = frozenset(
    {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "square_avg", "grad_avg", "momentum_buffer", "acc_delta",
     "row_var", "col_var", "variance", "prev", "ax"}
)  # fmt: skip
"""Moments that are zero until the first step."""
_SUM, _FIRST_SUM = "sum", "initial_accumulator_value"
"""Adagrad's sum, zero until the first step where its group says that it begins there."""
_COUNTS_UPDATES: Final = frozenset({"hf-trainer"})
"""Writers whose recorded step counts optimizer steps, applied or skipped."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One counter: whose, under which key, and what it says; None where it could not be read.

    `name` is "" for a counter of a whole group, whose number is `group`.
    """

    name: str
    key: str
    value: float | None
    group: int = -1


@dataclass(frozen=True, slots=True)
class _Wrong:
    """Counters with one thing wrong: what, in words that follow the value, what to do, and how bad it is."""

    counted: Sequence[Counted]
    said: str
    fix: str
    severity: Severity | None = None


@also(runs.step_counter_mismatch)
def step_counter_mismatch(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """An update counter is no count, says that no update was made of moments that are there, or is ahead of the run."""
    for place in range(len(stored.checkpoint.state.optimizers)):
        counted = counters_of(stored, place)
        unread = [one for one in counted if one.value is None]
        if unread:
            whose = names(one.name or f"group {one.group}" for one in unread)
            yield Unjudged(f"{unread[0].key} of {whose} in optimizer {place} is no number that can be read")
        for wrong in _wrong(stored, place, [one for one in counted if one.value is not None]):
            if wrong.counted:
                yield _told(wrong, place)


def _told(wrong: _Wrong, place: int) -> Evidence:
    first = wrong.counted[0]
    whose = [one.name or f"group {one.group}" for one in wrong.counted]
    where = Place(
        parameter=first.name or None, key=first.key, optimizer=place, group=first.group if first.group >= 0 else None
    )
    return Evidence(
        f"{first.key} of optimizer {place} is {_shown(first.value)}{wrong.said}: {names(whose)}",
        where,
        {"value": _shown(first.value), "count": len(whose), "parameters": kept(whose)},
        wrong.fix,
        wrong.severity,
    )


def _wrong(stored: Stored, place: int, counted: Sequence[Counted]) -> Iterator[_Wrong]:
    """What can be wrong with counters that were read, each with those that it is true of."""
    yield _Wrong(
        [one for one in counted if not _is_count(one.value)],
        ", which is no count of updates",
        "take the counter from another checkpoint: bias correction is wrong with this one",
    )
    yield _Wrong(
        [one for one in counted if one.value == 0 and _has_moments(stored, place, one)],
        " although its moments are not zero",
        "save the counter with the moments: bias correction would begin anew with moments that are warm",
    )
    recorded = stored.checkpoint.state.step
    if stored.checkpoint.convention in _COUNTS_UPDATES and recorded is not None:
        # A warning, for a second `train` of one trainer goes on with its optimizer and counts its own steps from 0.
        yield _Wrong(
            [one for one in counted if _is_count(one.value) and (one.value or 0) > recorded],
            f", more than {stored.checkpoint.recorded_step or recorded}",
            "find out which is right: the optimizer was stepped before this run, or the run's step is of another state",
            Severity.WARNING,
        )


def _is_count(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value >= 0 and value == int(value)


def _has_moments(stored: Stored, place: int, counted: Counted) -> bool:
    if stored.survey is None:
        return False
    optimizer = stored.checkpoint.state.optimizers[place]
    group = optimizer.group_of(counted.name) if counted.name else counted.group
    given = optimizer.groups[group].hyperparameters if group is not None else {}
    keys = _GATHERED | ({_SUM} if number_of(given.get(_FIRST_SUM)) == 0 else set())
    if counted.name:
        return _is_warm(stored.survey, place, counted.name, keys)
    members = optimizer.groups[counted.group].members
    return any(_is_warm(stored.survey, place, name, keys) for name in members if name is not None)


def _is_warm(survey: Survey, place: int, name: str, keys: Collection[str]) -> bool:
    found = (survey.contents.get(Item("state", name, key, place)) for key in keys)
    return any(one is not None and one.zeros < one.numel for one in found)


def counters_of(stored: Stored, place: int) -> list[Counted]:
    """Every counter of one optimizer, of parameters and of groups."""
    optimizer = stored.checkpoint.state.optimizers[place]
    rows = stored.classes[place].rows
    keys = {key for row in rows for key, kind in row.keys.items() if kind is Kind.COUNTER} or {_STEP}
    found = [
        Counted(name, key, _value(state[key], Item("state", name, key, place), stored.survey))
        for name, state in optimizer.state.items()
        for key in keys & state.keys()
    ]
    group_keys = {row.group_counter for row in rows} - {""}
    for number, group in enumerate(optimizer.groups):
        given = group.hyperparameters
        found += [Counted("", key, number_of(given[key]), number) for key in group_keys & given.keys()]
    return found


def _value(entry: Entry, item: Item, survey: Survey | None) -> float | None:
    """What a counter says. A floating one was counted when it was read, and its count is its value."""
    content = survey.contents.get(item) if survey is not None else None
    if content is None or content.numel != 1 or content.inf or content.minus_inf:
        return number_of(entry)
    if content.nan:
        return math.nan
    return -content.largest if content.negative else content.largest


def number_of(entry: Entry | None) -> float | None:
    """The number that an entry is; None for what is none, or cannot be read."""
    if entry is None:
        return None
    value = entry.value
    if value is None and entry.ref is not None:
        try:
            value = number_in(entry.ref)
        except CheckpointError:
            return None
    try:
        # A text may be an integer that is too long for a float to hold, or "nan:" with its bits.
        return float(value.partition(":")[0] if isinstance(value, str) else value) if value is not None else None
    except (ValueError, OverflowError):
        return None


def _shown(value: float | None) -> Json:
    if value is None or not math.isfinite(value):
        return str(value)
    return int(value) if value == int(value) else value

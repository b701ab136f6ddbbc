"""CK6: which checkpoint of a run a resume takes, and whether that is the newest."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place, Severity
from ckptcheck.rules.rule import Evidence, also
from ckptcheck.rules.runs.trajectory import steps_missing_or_repeated
from ckptcheck.rules.series.series import Member, Order, Series

CLOCK_S: Final = 60.0
"""Times of files closer than this tell no order: a copy writes a whole run within a minute."""


@also(steps_missing_or_repeated, severity=Severity.WARNING)
def newest_is_taken(series: Series) -> Iterator[Evidence]:
    """The tracker names an older checkpoint than the newest whole one, or the newest by number is not so by time."""
    chosen = next((one for one in series.members if one.chosen), None)
    whole = [one for one in series.members if one.described is not None and not one.defects]
    newest = max(whole, key=_age_rank, default=None)
    if chosen is None or newest is None:
        return
    if series.tracker and _age_rank(newest) > _age_rank(chosen):
        yield Evidence(
            f"{series.tracker} names {chosen.name}, and {newest.name} is there and whole: a resume does the steps "
            "between them again",
            Place(path=series.tracker),
            {"tracked": chosen.name, "newest": newest.name},
            f"name {newest.name} in {series.tracker}, unless the training shall go back on purpose",
        )
    yield from _by_time(series, newest, whole)


def _by_time(series: Series, newest: Member, whole: list[Member]) -> Iterator[Evidence]:
    latest = max(whole, key=lambda one: one.written_s)
    if latest.written_s - newest.written_s > CLOCK_S and newest.written_s and _age_rank(latest) < _age_rank(newest):
        yield Evidence(
            f"{newest.name} has the highest step, and {latest.name} was written {_hours(latest, newest)} later: the "
            "first may be left over from an earlier run, or the times are those of a copy",
            Place(path=newest.name),
            {"highest": newest.name, "written_last": latest.name,
             "seconds_between": round(latest.written_s - newest.written_s)},
            f"delete {newest.name} if another run wrote it" if series.order is Order.STEPS
            else "compare their contents before resuming",
            Severity.INFO,
        )  # fmt: skip


def _age_rank(one: Member) -> tuple[int, int]:
    step = one.described.step if one.described is not None and one.described.counts_all else None
    return (one.number if step is None else step, one.number)


def _hours(latest: Member, newest: Member) -> str:
    seconds = latest.written_s - newest.written_s
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"


RULES: Final = (newest_is_taken,)

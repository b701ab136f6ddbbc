"""What a schedule's state must have for its formula: told by the fields of torch's classes."""

from collections.abc import Iterator
from typing import Final

from ckptcheck.finding import Place
from ckptcheck.optimizers.schedules import COMMON, NEEDED, SCHEDULES, ScheduleRow
from ckptcheck.rules.rule import Evidence
from ckptcheck.rules.stored.schedulers import Scheduler, active, milestones_passed
from ckptcheck.rules.words import count, kept, names

_TORCHS_OWN: Final = frozenset({"_last_lr", "_step_count"})
"""Fields that torch's classes have, and that another library's class of the same idea has not."""
_PLATEAU: Final = "ReduceLROnPlateau"


def lacking(scheduler: Scheduler) -> Iterator[Evidence]:
    """A class of torch's, told by a field that no other has, of which another field is not there."""
    for one in (scheduler, *scheduler.inner):
        row = _class(one)
        if row is None:
            continue
        needed = row.keys if row.name == _PLATEAU else row.keys | NEEDED
        missing = sorted(needed - one.fields - one.off(row))
        if missing:
            yield Evidence(
                f"the state of the schedule {one.label or '(' + row.name + ')'} lacks {names(missing)}, which "
                f"{row.name} needs: after a load it goes on with what its constructor made",
                Place(key=f"{one.place}{missing[0]}"),
                {"class": row.name, "missing": kept(missing)},
                "save scheduler.state_dict() as it is",
            )


def _class(scheduler: Scheduler) -> ScheduleRow | None:
    """The only class whose marks a state has, where nothing in it is from elsewhere."""
    if not _TORCHS_OWN & scheduler.fields:
        return None
    known = COMMON | {"default_min_lr", "min_lrs", "eps", "mode_worse", "num_bad_epochs"}
    found = [row for row in SCHEDULES if row.marks & scheduler.fields and scheduler.fields <= row.keys | known]
    return found[0] if len(found) == 1 else None


def wrong_keys(scheduler: Scheduler) -> Iterator[Evidence]:
    """Milestones that were numbers and are texts now: no position equals one, so that none is reached."""
    for one in (scheduler, *scheduler.inner):
        texts = [path for path in one.entries if path.startswith("milestones.")]
        if texts and all(path.partition(".")[2].lstrip("-").isdigit() for path in texts):
            yield Evidence(
                f"{count(texts, 'milestone')} of the schedule {'is a text' if len(texts) == 1 else 'are texts'} where "
                "the class compares numbers: after a load no milestone is reached, or each counts twice",
                Place(key=f"{one.place}milestones"),
                {"milestones": kept(path.partition(".")[2] for path in texts)},
                "keep the keys of the milestones integers: JSON and nested stores make texts of them",
            )


def sequence(scheduler: Scheduler) -> Iterator[Evidence]:
    """A sequence of schedules that lacks one of them, or one of which stands elsewhere than the sequence does."""
    if "_milestones" not in scheduler.fields:
        return
    milestones = scheduler.rates("_milestones")
    held = [one for one in scheduler.inner if one.entries or one.inner]
    if len(held) < len(milestones) + 1:
        yield Evidence(
            f"a sequence of schedules with {count(milestones, 'milestone')} needs {len(milestones) + 1}, and the "
            f"state of {len(held)} is there",
            Place(key=f"{scheduler.place}_schedulers"),
            {"milestones": [*milestones], "schedules": len(held)},
            "save the state of the sequence as it is, the schedules within it too",
        )
        return
    yield from _inner_position(scheduler, milestones)


def _inner_position(scheduler: Scheduler, milestones: list[float]) -> Iterator[Evidence]:
    passed, position = milestones_passed(scheduler), scheduler.position
    if passed is None or position is None or position < 0 or passed >= len(scheduler.inner):
        return
    inner = scheduler.inner[passed]
    expected = position - int(milestones[passed - 1]) if passed else position
    if inner.position is not None and inner.position != expected and active(inner) is not None:
        yield Evidence(
            f"the sequence stands at {position}, so that {inner.label} should stand at {expected}, and it "
            f"stands at {inner.position}: the schedule within was started anew, or stepped by itself",
            Place(key=f"{inner.place}last_epoch"),
            {"position": position, "expected": expected, "recorded": inner.position},
            "load the state of the sequence, which brings those within it",
        )

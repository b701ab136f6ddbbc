"""CK602: a schedule that will not go on where the file's stopped."""

from collections.abc import Iterator, Mapping
from typing import Final

from ckptcheck.finding import Severity
from ckptcheck.rules.loads.dry_run import DryRun
from ckptcheck.rules.loads.hyperparameters import hyperparameters_by_group
from ckptcheck.rules.loads.views import at
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.runs import resume
from ckptcheck.rules.words import brief, kept, names, shown
from ckptcheck.state.training_state import Entry


@also(resume.schedule_diverged)
def schedule_diverged(dry: DryRun) -> Iterator[Evidence]:
    """The schedule will not go on where the file's stopped: another class, an end that is past, a rate that jumps."""
    file, live = dry.checkpoint.state.sections.get("schedule"), dry.built.sections.get("schedule")
    if not file or not live:
        return
    strange = _other_class(file, live)
    if strange is not None:
        yield strange
    else:
        yield from _settings(dry, file, live)
    after = dry.loaded.sections.get("schedule", {}) if dry.loaded is not None and dry.raised is None else file
    total, last = (_number(after.get(key)) for key in ("total_steps", "last_epoch"))
    if total is not None and last is not None and last >= total:
        yield Evidence(
            f"the schedule stands at step {last:g} of {total:g} after the load: its next step raises",
            at(key="total_steps"),
            {"last_epoch": last, "total_steps": total},
            "build a schedule for the whole of the training, and do not load the old total over it",
            Severity.WARNING,
        )
    yield from _jump(dry, file)


def _heads(section: Mapping[str, Entry]) -> set[str]:
    return {path.partition("[")[0].partition(".")[0].partition("{")[0] for path in section}


def _other_class(file: Mapping[str, Entry], live: Mapping[str, Entry]) -> Evidence | None:
    only_file, only_live = sorted(_heads(file) - _heads(live)), sorted(_heads(live) - _heads(file))
    own = [[key for key in listed if key and not key.startswith("_")] for listed in (only_file, only_live)]
    if not own[0] or not own[1]:
        return None
    return Evidence(
        f"the file's schedule is of another class than the target's: it keeps {names(own[0])}, the target's "
        f"{names(own[1])}; its position alone is taken over",
        at(key=own[0][0]),
        {"only_file": kept(own[0]), "only_target": kept(own[1])},
        "resume with the schedule that was saved",
        Severity.WARNING,
    )


_POSITION: Final = frozenset({"last_epoch", "verbose", "best", "num_bad_epochs", "cooldown_counter", "T_cur"})


def _settings(dry: DryRun, file: Mapping[str, Entry], live: Mapping[str, Entry]) -> Iterator[Evidence]:
    """Settings of one class that differ: the file's win, so that a longer horizon of the target has no effect."""
    after = dry.loaded.sections.get("schedule", {}) if dry.loaded is not None else {}
    differing = [
        key
        for key, one in file.items()
        if key in live and live[key].digest != one.digest and not key.startswith("_") and "._" not in key
        and key.rpartition(".")[2] not in _POSITION
    ]  # fmt: skip
    if differing:
        key = differing[0]
        winner = "the target's" if after and after[key].digest == live[key].digest else "the file's"
        spelled = (f"{one}: {shown(file[one])} in the file, {shown(live[one])} in the target" for one in differing)
        yield Evidence(
            f"the schedule's settings differ, {winner} win: {names(spelled)}",
            at(key=key),
            {"file": shown(file[key]), "target": shown(live[key]), "settings": kept(differing)},
            "set the new horizon after the schedule is loaded, if it is meant to change",
            Severity.INFO,
        )


def _jump(dry: DryRun, file: Mapping[str, Entry]) -> Iterator[Evidence]:
    """A rate of the optimizer that is not the schedule's own after the load, though the file's are one."""
    if (
        dry.loaded is None
        or dry.loaded_optimizers is None
        or dry.raised is not None
        or len(dry.pairs) != 1
        or dry.pairs[0].file is None
    ):
        return
    schedule = dry.loaded.sections.get("schedule", {})
    for group, mine in hyperparameters_by_group(dry.pairs[0]):
        path = f"_last_lr[{group}]"
        saved = _number(file.get(path)), _number(mine.get("lr"))
        now = _number(schedule.get(path)), _number(dry.loaded_optimizers[0].groups[group].hyperparameters.get("lr"))
        if None not in (*saved, *now) and saved[0] == saved[1] and now[0] != now[1]:
            yield Evidence(
                f"after the load the optimizer's lr is {brief(now[1])} and the schedule's {brief(now[0])}, and "
                f"the file has {brief(saved[0])} for both: the rate jumps",
                at(optimizer=0, group=group, key="lr"),
                {"saved": saved[0], "optimizer": now[1], "schedule": now[0]},
                "build the schedule before the optimizer is loaded, and load both",
            )
            return


def _number(entry: Entry | None) -> float | None:
    value = entry.value if entry is not None else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


RULES: Final[tuple[Rule[DryRun], ...]] = (schedule_diverged,)

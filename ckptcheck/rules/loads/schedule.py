"""CK602: a schedule that will not go on where the file's stopped."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from ckptcheck.finding import Severity
from ckptcheck.optimizers.schedules import SCHEDULES
from ckptcheck.rules.loads.dry_run import OWN_LOAD, DryRun
from ckptcheck.rules.loads.hyperparameters import hyperparameters_by_group
from ckptcheck.rules.loads.views import at, came
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.runs import schedule as runs
from ckptcheck.rules.words import brief, kept, names, shown
from ckptcheck.state.training_state import Entry


@also(runs.schedule_diverged)
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
    yield from [*_jump(dry, file)] or _left(dry, file, live)


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


_POSITION: Final = frozenset({"last_epoch", "verbose", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i"})
"""What moves as the training goes."""
_SETTINGS: Final = frozenset().union(*(row.keys for row in SCHEDULES)) - _POSITION
"""What torch's schedules are built with: of another class's keys nobody knows whether they move."""
_HORIZONS: Final = frozenset(
    {"T_max", "total_steps", "total_iters", "num_training_steps", "max_steps", "t_initial", "max_iters", "end_step"}
)
"""Settings that say when a schedule ends."""


def _settings(dry: DryRun, file: Mapping[str, Entry], live: Mapping[str, Entry]) -> Iterator[Evidence]:
    """Settings of one class that differ: the file's win, so that a longer horizon of the target has no effect."""
    after = dry.loaded.sections.get("schedule", {}) if dry.loaded is not None else {}
    differing = [
        key
        for key, one in file.items()
        if key in live and live[key].digest != one.digest and not key.startswith("_") and "._" not in key
        and key.rpartition(".")[2] not in _POSITION
    ]  # fmt: skip
    if not differing:
        return
    lost = [key for key in differing if after and key in after and after[key].digest == live[key].digest]
    told = lost or differing
    key, winner = told[0], "the target's" if lost else "the file's"
    spelled = (f"{one}: {shown(file[one])} in the file, {shown(live[one])} in the target" for one in told)
    weighty = lost or [one for one in told if _key(one) in _SETTINGS]
    over = "" if lost else _over(after or file, differing)
    harmless = all(_is_longer(one, file, live) for one in weighty) and not over
    yield Evidence(
        f"the schedule's settings differ, {winner} win: {names(spelled)}{over}",
        at(key=key),
        {"file": shown(file[key]), "target": shown(live[key]), "settings": kept(told), "wins": winner[4:-2]},
        "load the schedule's state in your load" if lost and not harmless
        else "set the new horizon after the schedule is loaded, if it is meant to change",
        Severity.INFO if harmless else Severity.WARNING,
    )  # fmt: skip


def _over(after: Mapping[str, Entry], differing: Collection[str]) -> str:
    """Said of a cosine that has come to the end which the file gives it: it goes up again; "" for any other."""
    end, last = (_number(after.get(key)) for key in ("T_max", "last_epoch"))
    if "T_max" not in differing or end is None or last is None or last < end:
        return ""
    return f"; it stands at step {brief(last)} of {brief(end)}, and its rate goes up again from there"


def _key(path: str) -> str:
    return path.rpartition(".")[2].partition("[")[0].partition("{")[0]


def _is_longer(path: str, file: Mapping[str, Entry], live: Mapping[str, Entry]) -> bool:
    """Whether a setting is a horizon which the target puts off: a training that shall go on for longer."""
    old, new = _number(file[path]), _number(live[path])
    return _key(path) in _HORIZONS and old is not None and new is not None and new > old


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


def _left(dry: DryRun, file: Mapping[str, Entry], live: Mapping[str, Entry]) -> Iterator[Evidence]:
    """A position that the target's own load left as it was built, though the file has another one."""
    if dry.loaded is None or dry.raised is not None or dry.how != OWN_LOAD:
        return
    after = dry.loaded.sections.get("schedule", {})
    saved, built, now = (_number(one.get("last_epoch")) for one in (file, live, after))
    if None not in (saved, built) and built == now != saved and not came(dry, "schedule"):
        yield Evidence(
            f"the load left the schedule at step {brief(now)}, where the target had built it; the file has it at step "
            f"{brief(saved)}",
            at(key="last_epoch"),
            {"saved": saved, "loaded": now},
            "call scheduler.load_state_dict in your load",
        )


def _number(entry: Entry | None) -> float | None:
    value = entry.value if entry is not None else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


RULES: Final[tuple[Rule[DryRun], ...]] = (schedule_diverged,)

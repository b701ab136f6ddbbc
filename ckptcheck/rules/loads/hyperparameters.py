"""CK306 and CK602: hyperparameters and schedules, on which the file and the target disagree."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.groups import match_groups
from ckptcheck.comparison.traces import FLAGS
from ckptcheck.finding import Json, Severity
from ckptcheck.rules.loads.dry_run import DryRun, Paired
from ckptcheck.rules.loads.views import BOOKKEEPING, RATES, at, refused, rows_of, sizes, was_scheduled
from ckptcheck.rules.rule import Evidence, Rule, also
from ckptcheck.rules.runs import binding as runs
from ckptcheck.rules.runs import resume
from ckptcheck.rules.words import brief, count, kept, names, shown
from ckptcheck.state.raw import RawTensor
from ckptcheck.state.training_state import Entry


@dataclass(frozen=True, slots=True)
class Change:
    """A hyperparameter that differs between a group of the file and one of the target, None where one lacks it.

    `after` is what the group has after the load, None without a load or where it is gone.
    """

    optimizer: int
    group: int
    key: str
    file: Entry | None
    target: Entry | None
    after: Entry | None

    @property
    def wins(self) -> str:
        """Whose value the load leaves: file, target, neither, or "" without a load."""
        if self.after is None:
            return ""
        for side, word in ((self.file, "file"), (self.target, "target")):
            if side is not None and side.digest == self.after.digest:
                return word
        return "neither"

    def __str__(self) -> str:
        return f"{self.key} of group {self.group}: {_said(self.file)} in the file, {_said(self.target)} in the target"


def _said(entry: Entry | None) -> Json:
    return "none" if entry is None else shown(entry)


def changes(dry: DryRun) -> list[Change]:
    """Every hyperparameter that differs between groups that answer to each other."""
    found = []
    for pair in dry.pairs:
        for group, mine in _groups(pair):
            live = pair.live.groups[group].hyperparameters
            after = dry.loaded_optimizers[pair.place].groups if dry.loaded_optimizers is not None else ()
            now = after[group].hyperparameters if group < len(after) else {}
            for key in {**mine, **live}:
                one, other = mine.get(key), live.get(key)
                if one is None or other is None or one.digest != other.digest:
                    found.append(Change(pair.place, group, key, one, other, now.get(key)))
    return found


def _groups(pair: Paired) -> Iterator[tuple[int, Mapping[str, Entry]]]:
    """Each live group with the hyperparameters of the file's group that a load puts into it."""
    if pair.file is None:
        return
    if pair.by_position or not pair.named:
        if sizes(pair.file) == sizes(pair.live):
            yield from enumerate(group.hyperparameters for group in pair.file.groups)
        return
    match = match_groups([one.members for one in pair.file.groups], [one.members for one in pair.live.groups])
    for live, own in sorted(match.left_of.items()):
        yield live, pair.file.groups[own].hyperparameters


@also(runs.hyperparameter_changed)
def hyperparameter_changed(dry: DryRun) -> Iterator[Evidence]:
    """A hyperparameter of the file differs from the target's; says which one the load leaves."""
    differing = changes(dry)
    yield from _asserts_on_cpu(dry, differing)
    yield from _gone(dry, differing)
    both = [one for one in differing if one.file is not None and one.target is not None]
    scheduled = "schedule" in dry.built.sections, was_scheduled(dry)
    lone = scheduled[0] is not scheduled[1]
    rates = [one for one in both if any(scheduled) and one.key in RATES and _is_moved(dry, one)]
    fixed = [one for one in both if one not in rates and one.key not in BOOKKEEPING]
    for listed, severity in (
        ([one for one in fixed if one.key not in FLAGS], Severity.WARNING),
        ([one for one in rates if one.wins == "target" and one.key not in BOOKKEEPING], Severity.WARNING),
        # A rate that the schedule has moved is what a resume is for; where it started from is not.
        ([one for one in rates if one.wins != "target" and (lone or one.key == "initial_lr")], Severity.INFO),
        ([one for one in fixed if one.key in FLAGS], Severity.INFO),
    ):
        if listed:
            yield _evidence(listed, severity)


def _is_moved(dry: DryRun, one: Change) -> bool:
    """Whether a schedule moves it: a momentum only where one has planted its bounds beside it."""
    if not one.key.startswith(("betas", "momentum")):
        return True
    pair = next(pair for pair in dry.pairs if pair.place == one.optimizer)
    sides = (pair.live.groups, pair.file.groups if pair.file is not None else ())
    return any("max_momentum" in group.hyperparameters for side in sides for group in side)


def _evidence(listed: list[Change], severity: Severity) -> Evidence:
    one = listed[0]
    winners = {each.wins for each in listed} - {""}
    said = {"file": "the file's value wins", "target": "the target's value wins", "neither": "a third value wins"}
    outcome = said[next(iter(winners))] if len(winners) == 1 else "load_state_dict puts the file's value into the group"
    return Evidence(
        f"{count(listed, 'hyperparameter')} {'differs' if len(listed) == 1 else 'differ'}, {outcome}: "
        f"{names(str(each) for each in listed)}",
        at(optimizer=one.optimizer, group=one.group, key=one.key),
        {"file": _said(one.file), "target": _said(one.target), "wins": one.wins or None,
         "changes": kept(str(each) for each in listed)},
        "set the value you mean after load_state_dict, or leave the file's",
        severity,
    )  # fmt: skip


def _asserts_on_cpu(dry: DryRun, differing: list[Change]) -> Iterator[Evidence]:
    found = [one for one in differing if one.key == "capturable" and one.file is not None and one.file.value is True]
    if found and any(one.target is not None for one in found):
        one = found[0]
        devices = {entry.ref.device for entry in _tensors(dry) if isinstance(entry.ref, RawTensor) and entry.ref.device}
        on_gpu = any(not device.startswith("cpu") for device in devices)
        yield Evidence(
            f"the file sets capturable=True in group {one.group} of optimizer {one.optimizer}, where the target "
            "has False: the first step on a CPU fails an assertion",
            at(optimizer=one.optimizer, group=one.group, key=one.key),
            {"file": True, "target": False, "saved_from": kept(sorted(devices))},
            "set capturable back to False after load_state_dict",
            Severity.WARNING if on_gpu else Severity.ERROR,
        )


def _tensors(dry: DryRun) -> Iterator[Entry]:
    for pair in dry.pairs:
        if pair.file is not None:
            for one in pair.file.state.values():
                yield from one.values()


def _gone(dry: DryRun, differing: list[Change]) -> Iterator[Evidence]:
    """Keys that the target's update reads and the file's group lacks: load_state_dict takes the whole group."""
    for pair in dry.pairs:
        own = {"lr", "weight_decay"} | {key for row in rows_of(pair.live) for key in row.hyperparameters}
        lost = [
            one
            for one in differing
            if one.optimizer == pair.place and one.file is None and one.after is None
            and one.key.partition("[")[0] in own and pair.by_position and not refused(dry, pair)
        ]  # fmt: skip
        if lost and not _same_family(pair):
            yield Evidence(
                f"the file's group {lost[0].group} of optimizer {pair.place} lacks {names(one.key for one in lost)}: "
                "after load_state_dict the target's group lacks it too, and the first step raises",
                at(optimizer=pair.place, group=lost[0].group, key=lost[0].key),
                {"missing": kept(one.key for one in lost)},
                "add the missing keys to the file's groups before the load",
                Severity.ERROR if dry.loaded is not None or lost[0].key == "lr" else Severity.WARNING,
            )


def _same_family(pair: Paired) -> bool:
    """Whether another class explains the missing keys, which CK203 tells."""
    bare = {one.rpartition(".")[2] for one in pair.guesses}
    return bool(bare) and pair.live.class_name not in bare and bool(pair.file and pair.file.state)


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
    for group, mine in _groups(dry.pairs[0]):
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


RULES: Final[tuple[Rule[DryRun], ...]] = (hyperparameter_changed, schedule_diverged)

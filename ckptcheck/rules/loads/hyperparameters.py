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
from ckptcheck.rules.words import count, kept, names, shown
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
        for group, mine in hyperparameters_by_group(pair):
            live = pair.live.groups[group].hyperparameters
            after = dry.loaded_optimizers[pair.place].groups if dry.loaded_optimizers is not None else ()
            now = after[group].hyperparameters if group < len(after) else {}
            for key in {**mine, **live}:
                one, other = mine.get(key), live.get(key)
                if one is None or other is None or one.digest != other.digest:
                    found.append(Change(pair.place, group, key, one, other, now.get(key)))
    return found


def hyperparameters_by_group(pair: Paired) -> Iterator[tuple[int, Mapping[str, Entry]]]:
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


RULES: Final[tuple[Rule[DryRun], ...]] = (hyperparameter_changed,)

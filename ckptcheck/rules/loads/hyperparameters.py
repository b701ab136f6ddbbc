"""CK306: hyperparameters on which the file, the target and what the load leaves disagree."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.groups import match_groups
from ckptcheck.comparison.traces import FLAGS
from ckptcheck.finding import Json, Severity
from ckptcheck.rules.loads.dry_run import DryRun, Paired
from ckptcheck.rules.loads.views import (
    BOOKKEEPING,
    COUNTED_IN_GROUPS,
    RATES,
    at,
    refused,
    rows_of,
    sizes,
    was_scheduled,
)
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
            if side is not None and same_number(side, self.after):
                return word
        return "neither"

    @property
    def is_agreed(self) -> bool:
        """Whether the file and the target as built have one value."""
        return self.file is not None and self.target is not None and same_number(self.file, self.target)

    def __str__(self) -> str:
        built = "" if self.is_agreed else f", {_said(self.target)} in the target"
        after = f", {_said(self.after)} after the load" if self.wins == "neither" else ""
        return f"{self.key} of group {self.group}: {_said(self.file)} in the file{built}{after}"


def _said(entry: Entry | None) -> Json:
    return "none" if entry is None else shown(entry)


def same_number(one: Entry, other: Entry) -> bool:
    """Whether two values are one: in content, or as the same number, be it plain or in a tensor of one element."""
    if one.digest == other.digest:
        return True
    values = [side.value for side in (one, other)]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return False
    if any(side.spec is not None and side.spec.dtype == "float32" for side in (one, other)):
        values = [_single(value) for value in values]
    return values[0] == values[1]


def _single(value: object) -> float:
    """A number as float32 has it."""
    assert isinstance(value, int | float)
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return float(value)


def changes(dry: DryRun) -> list[Change]:
    """Every hyperparameter that is not one in the file, in the target's group that answers, and after the load."""
    found = []
    for pair in dry.pairs:
        for group, mine in hyperparameters_by_group(pair):
            live = pair.live.groups[group].hyperparameters
            after = dry.loaded_optimizers[pair.place].groups if dry.loaded_optimizers is not None else ()
            now = after[group].hyperparameters if group < len(after) else {}
            for key in {**mine, **live}:
                one, other = mine.get(key), live.get(key)
                change = Change(pair.place, group, key, one, other, now.get(key))
                if not change.is_agreed or change.wins == "neither":
                    found.append(change)
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
    both = [one for one in differing if one.file is not None and one.target is not None and not _is_progress(one)]
    scheduled = "schedule" in dry.built.sections, was_scheduled(dry)
    yield from _overruled([one for one in both if one.is_agreed and not (any(scheduled) and one.key in RATES)])
    both = [one for one in both if not one.is_agreed]
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


def _is_progress(one: Change) -> bool:
    """Whether it is no setting but what the optimizer itself counts in its group, and the file's is taken over."""
    return one.key in COUNTED_IN_GROUPS and one.wins in ("", "file")


def _overruled(listed: list[Change]) -> Iterator[Evidence]:
    """Values that the file and the target have alike, and the load has changed: no schedule explains them."""
    listed = [one for one in listed if one.key not in FLAGS and one.key not in BOOKKEEPING]
    if listed:
        one = listed[0]
        yield Evidence(
            f"the load sets {count(listed, 'hyperparameter')} to what neither the file nor the target has: "
            f"{names(str(each) for each in listed)}",
            at(optimizer=one.optimizer, group=one.group, key=one.key),
            {"file": _said(one.file), "target": _said(one.target), "loaded": _said(one.after), "wins": one.wins,
             "changes": kept(str(each) for each in listed)},
            "leave what load_state_dict has put into the groups, or save the value that you mean",
        )  # fmt: skip


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

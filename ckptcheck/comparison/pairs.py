"""What of two checkpoints belongs together: the nouns, and what needs no more than equal paths."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ckptcheck.comparison.checkpoint_diff import OptimizerPair, Regrouped, Row, section_of
from ckptcheck.comparison.schedule_pairs import renamed_schedules
from ckptcheck.state.training_state import Entry, TrainingState
from ckptcheck.state.tree import ASIDES

_EMPTY: Final = ("{}", "[]", "()", "set{}")
"""Texts of containers without anything in them."""
_STEP: Final = re.compile(r"[.\[{]")
"""Where a path goes on into a container."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor or value and its partner; None on a side that lacks it.

    `section`, `parameter`, `key`, `optimizer` and `group` are those of a `Row`. `role` is what tolerances go by:
    "param", "buffer", "grad", "state", "hyper", else the section.
    """

    section: str
    parameter: str | None
    key: str | None
    left: Entry | None
    right: Entry | None
    role: str
    optimizer: int | None = None
    group: int | None = None

    @property
    def place(self) -> str:
        """As users write it in patterns: "model/fc.weight", "optimizer/fc.weight/exp_avg", "optimizer/group 0/lr"."""
        owner = self.parameter
        if owner is None and self.role == "hyper":
            owner = f"group {self.group}"
        return "/".join(part for part in (self.section, owner, self.key) if part is not None)


@dataclass(slots=True)
class Pairing:
    """Collects pairs and what is to be said about them; the rest as of a `CheckpointDiff`.

    `reordered` has a row for each optimizer whose groups or members stand in another order, where that matters.
    `left_group_of` maps (optimizer, right group) to the left group that answers to it.
    """

    pairs: list[Pair] = field(default_factory=list)
    regrouped: list[Regrouped] = field(default_factory=list)
    reordered: list[Row] = field(default_factory=list)
    optimizers: list[OptimizerPair] = field(default_factory=list)
    left_group_of: dict[tuple[int, int], int] = field(default_factory=dict)
    paired_by: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def by_key(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Each key with both sides' entries, in the left's order, then what only the right has.

    What is told of an object beside its content is left out where one side has it: other formats write plain dicts.
    """
    for key, entry in left.items():
        if key in right or not key.endswith(ASIDES):
            yield key, entry, right.get(key)
    for key, entry in right.items():
        if key not in left and not key.endswith(ASIDES):
            yield key, None, entry


def pair_surroundings(left: TrainingState, right: TrainingState, pairing: Pairing) -> None:
    """Pair gradients, generators and the sections by path, and modes and flags where both sides say them."""
    for name, parameter in left.parameters.items():
        partner = right.parameters.get(name)
        if parameter.grad is not None and partner is not None and partner.grad is not None:
            pairing.pairs.append(Pair("other", name, "grad", parameter.grad, partner.grad, "grad"))
    for generator, one, other in by_key(left.rng, right.rng):
        pairing.pairs.append(Pair("rng", None, generator, one, other, "rng"))
    told, others_told = _told(left), _told(right)
    for section in dict.fromkeys((*told, *others_told)):
        entries, others = told.get(section, {}), others_told.get(section, {})
        if section == "scheduler":
            others = _schedules(entries, others, pairing)
        for path, one, other in by_key(_without_filled(entries, others), _without_filled(others, entries)):
            pairing.pairs.append(Pair(section, None, path, one, other, section))
    _add_step(left.step, right.step, pairing)
    for kind, ours, theirs in (("training", left.modes, right.modes), ("flag", left.flags, right.flags)):
        for name in ours:
            if name in theirs:
                pair = Entry(None, None, value=ours[name]), Entry(None, None, value=theirs[name])
                pairing.pairs.append(Pair("other", None, f"{kind} {name}", *pair, "other"))


def _told(state: TrainingState) -> Mapping[str, Mapping[str, Entry]]:
    """The entries by the section that users know, where a counter that turned into a text still has its partner."""
    found: dict[str, dict[str, Entry]] = {}
    for section, entries in state.sections.items():
        for path, entry in entries.items():
            told = found.setdefault(section_of(section, path), {})
            told[path if path not in told else f"{section}.{path}"] = entry
    return found


def _without_filled(entries: Mapping[str, Entry], others: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """Without empty containers that hold something on the other side, which is told by what they hold."""
    empty = {path for path, entry in entries.items() if path not in others and entry.value in _EMPTY}
    if not empty:
        return entries
    filled = {path[: end.start()] for path in others for end in _STEP.finditer(path)} & empty
    return {path: entry for path, entry in entries.items() if path not in filled}


def _schedules(left: Mapping[str, Entry], right: Mapping[str, Entry], pairing: Pairing) -> Mapping[str, Entry]:
    renamed = renamed_schedules(left, right)
    if renamed.keys() != right.keys():
        pairing.notes.append("schedulers are told by the left's names or numbers; the right has them under other ones")
    return renamed


def _add_step(left: int | None, right: int | None, pairing: Pairing) -> None:
    """The step that both conventions found, unless a counter of the files says the same already."""
    if left is None or right is None or any(pair.section == "progress" for pair in pairing.pairs):
        return
    pair = Entry(None, None, value=left), Entry(None, None, value=right)
    pairing.pairs.append(Pair("progress", None, "step", *pair, "progress"))

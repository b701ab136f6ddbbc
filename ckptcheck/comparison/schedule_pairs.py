"""Several learning rate schedulers of two sides: which answers to which, whatever the files call or number them."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ckptcheck.state.training_state import Entry

_NUMBERED: Final = re.compile(r"\[\d+\](?=\.)")
_FIELDS: Final = frozenset({"base_lrs", "last_epoch", "_last_lr", "_step_count", "num_bad_epochs"})
"""What a scheduler's state_dict has at its root, at least one of them."""
_Objects = dict[str, dict[str, Entry]]
"""Entries by path within each scheduler, by what stands in front of the path ("" for a single one)."""


def renamed_schedules(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """The right's entries by the left's labels or numbers, where these are not the same already.

    Schedulers with labels on both sides keep them. Numbers are paired in order with numbers or labels; where the
    counts differ, each with the next that has the same keys. What has no partner keeps a label that the left lacks.
    """
    ours, theirs = schedulers_in(left), schedulers_in(right)
    if not ours or not theirs or ours.keys() == theirs.keys() or all(map(_is_labelled, (ours, theirs))):
        return right
    partner = _partners(list(ours.values()), list(theirs.values()))
    names = list(ours)
    free = (f"[{number}]" for number in range(len(ours) + len(theirs)) if f"[{number}]" not in ours)
    renamed: dict[str, Entry] = {}
    for place, (label, entries) in enumerate(theirs.items()):
        told = names[partner[place]] if place in partner else label if label not in ours else next(free)
        renamed.update((f"{told}.{path}" if told else path, entry) for path, entry in entries.items())
    return renamed


def schedulers_in(entries: Mapping[str, Entry]) -> _Objects:
    """The entries of each scheduler; all under "" where they are not those of several."""
    if not entries or _is_single(entries):
        return {"": dict(entries)} if entries else {}
    found: _Objects = {}
    for path, entry in entries.items():
        label = _label(path, entries)
        found.setdefault(label, {})[path[len(label) + 1 :] if label else path] = entry
    return found


def _is_single(entries: Mapping[str, Entry]) -> bool:
    return any(_root(path) in _FIELDS for path in entries)


def _is_labelled(objects: _Objects) -> bool:
    return all(label and not label.startswith("[") for label in objects)


def _root(path: str) -> str:
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _label(path: str, entries: Mapping[str, Entry]) -> str:
    """What stands in front of a scheduler's own keys: "[1]", or the file's word for it."""
    numbered = _NUMBERED.match(path)
    if numbered:
        return numbered.group()
    return path.partition(".")[0] if "." in path else ""


def _partners(left: Sequence[Mapping[str, Entry]], right: Sequence[Mapping[str, Entry]]) -> dict[int, int]:
    """Right places to left places: in order; of unequal counts only those that have the same keys."""
    if len(left) == len(right):
        return {place: place for place in range(len(right))}
    kinds = [[frozenset(re.sub(r"\[\d+\]", "", path) for path in one) for one in side] for side in (left, right)]
    found: dict[int, int] = {}
    for place, kind in enumerate(kinds[1]):
        at = next((one for one, other in enumerate(kinds[0]) if other == kind and one not in found.values()), None)
        if at is not None:
            found[place] = at
    return found

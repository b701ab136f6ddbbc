"""How far two trajectories are apart: what differs at each step, the numbers, and how they grow."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from ckptcheck.finding import Json, Place, Result
from ckptcheck.reports import words
from ckptcheck.reports.sheet import Sheet

Entry: TypeAlias = Mapping[str, Json]
"""An entry of `trajectory` or `magnitudes`: run, step, stage, section, parameter, key, and numbers or a reason."""

_FIRST_SHOWN: Final = 3
"""Tensors that are shown of the first kind of item with numbers; of every later kind one is."""
_POINTS: Final = 8
"""Steps that a curve shows before it leaves some out."""
_KINDS: Final = {
    "param": "parameter", "grad": "gradient", "state": "state tensor", "hyper": "hyperparameter", "buffer": "buffer",
    "rng": "generator", "inputs": "input", "loss": "loss value", "schedule": "schedule value", "scaler": "scaler value",
    "ema": "EMA value", "data": "data value", "extra": "extra value", "structure": "structural change",
    "updates": "update count",
}  # fmt: skip
"""What one item of a section is called."""


def numbers_at(result: Result, first: Place) -> Entry:
    """Return the numbers of the place where the trajectories part; empty where none are known."""
    spot = {"step": first.step, "stage": first.stage, "parameter": first.parameter, "key": first.key}
    there = [
        entry for entry in _telling(result, full=False) if all(entry.get(key) == value for key, value in spot.items())
    ]
    if there:
        return next(filter(words.magnitude, there), there[0])
    cause = words.cause_finding(result)
    return cause.evidence if cause else {}


def spoken(first: Place, numbers: Entry) -> str:
    """Return what parts first: the tensor or value, by the numbers of its place, with its optimizer and group."""
    known = "section" in numbers and not words.counts_updates(first)
    what = named(numbers) if known else words.thing(first.parameter, first.key)
    return ", ".join(part for part in (what, words.binding(first)) if part)


def named(entry: Entry) -> str:
    """Return which tensor or value an entry is about: "blocks.0.fc.weight / exp_avg", "generator torch"."""
    name = words.thing(entry.get("parameter"), entry.get("key"))
    section = words.scalar(entry.get("section", entry.get("stage")))
    return name if name and section in ("param", "state") else f"{_KINDS.get(section, section)} {name}".strip()


def distance(entry: Entry) -> str:
    """Return how far an entry's two sides are apart, as far as it is of use; a generator has no magnitude."""
    if entry.get("section") == "rng":
        differing, size = entry.get("differing"), entry.get("numel")
        return f"{differing} of {size} bytes differ" if differing is not None else ""
    left, right = entry.get("left"), entry.get("right")
    if entry.get("max_abs") is None and left is not None and right is not None:
        return f"{words.scalar(left)} on the left, {words.scalar(right)} on the right"
    return words.magnitude(entry)


def entries_of(result: Result, part: str) -> list[Entry]:
    """Return a list that a result holds beside its frame; empty where it holds none."""
    entries = result.parts.get(part)
    return [entry for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []


def differences(sheet: Sheet, result: Result, full: bool) -> None:
    """Say what differs at the load and in the first divergent step, and for the largest how far; or all of it."""
    runs = _grouped(_telling(result, full), "run")
    label, shown = "Differences", _FIRST_SHOWN
    for run, entries in list(runs.items())[: None if full else 1]:
        steps = list(_grouped(entries, "step").values())
        for one in steps if full else _first_steps(steps):
            told = f"{run}, " if len(runs) > 1 else ""
            when = words.moment(one[0].get("step"), "load" if one[0].get("stage") == "load" else None)
            sheet.row(label, f"{told}{when}: {_counts(one)}")
            label = ""
            if full:
                _all(sheet, one)
            elif _largest(sheet, one, shown):
                shown = 1
    others = list(runs)[1:]
    if others and not full:
        sheet.row("", f"and in {', '.join(others)}; -v shows all", style="dim")


def _telling(result: Result, full: bool) -> list[Entry]:
    """All differences, or without gradients that were left over at the save, unless they are what it is about."""
    entries = entries_of(result, "trajectory")
    if full or (result.cause is not None and result.cause.code == "CK613"):
        return entries
    return [one for one in entries if (one.get("stage"), one.get("section")) != ("load", "grad")]


def drift(sheet: Sheet, result: Result, full: bool) -> None:
    """Say how the greatest difference of a parameter grows, in the run that parts first."""
    trajectory = entries_of(result, "trajectory")
    if not trajectory:
        return
    run = trajectory[0].get("run")
    steps = [one for one in trajectory if one.get("run") == run and one.get("stage") == "param"]
    points = {
        str(step): max(numbers)
        for step, entries in _grouped(steps, "step").items()
        if (numbers := [abs(value) for one in entries if isinstance(value := one.get("rel_l2"), (int, float))])
    }
    if len(points) < 2:
        return
    said = [f"{step}: {words.scalar(points[step])}" for step in points]
    if len(said) > _POINTS and not full:
        said = [*said[: _POINTS // 2], "...", *said[-_POINTS // 2 + 1 :]]
    sheet.row("Drift", f"largest rel L2 of a parameter after step {', '.join(said)}")


def _first_steps(steps: Sequence[list[Entry]]) -> list[list[Entry]]:
    """The load and the first step after it that differs, as far as there are such."""
    loads = [one for one in steps if one[0].get("stage") == "load"]
    return [*loads[:1], *[one for one in steps if one not in loads][:1]]


def _counts(entries: Iterable[Entry]) -> str:
    kinds = {kind: len(group) for kind, group in _grouped(entries, "section").items()}
    return ", ".join(words.counted(number, _KINDS.get(kind, kind)) for kind, number in kinds.items())


def _largest(sheet: Sheet, entries: Sequence[Entry], shown: int) -> bool:
    """Show the largest differences of the first kind of item that has numbers, and the largest of the others."""
    said = False
    for group in _grouped(entries, "section").values():
        measured = sorted((one for one in group if one.get("section") != "rng" and words.magnitude(one)),
                          key=_weight, reverse=True)  # fmt: skip
        for entry in measured[: 1 if said else shown]:
            sheet.row("", words.magnitude(entry), lead=f"{named(entry)}: ", deeper=True)
        said = said or bool(measured)
    return said


def _all(sheet: Sheet, entries: Sequence[Entry]) -> None:
    unmeasured: dict[str, list[str]] = {}
    for entry in entries:
        if numbers := words.magnitude(entry, full=True):
            sheet.row("", numbers, lead=f"{named(entry)}: ", deeper=True)
        else:
            unmeasured.setdefault(words.scalar(entry.get("reason")), []).append(named(entry))
    for reason, names in unmeasured.items():
        sheet.row("", ", ".join(names), lead=f"{reason}: ", deeper=True)


def _weight(entry: Entry) -> tuple[float, float]:
    """How much an entry matters: one that is not finite or has nothing to be relative to the most."""
    relative, most = entry.get("rel_l2"), entry.get("max_abs")
    numbers = [float(one) if isinstance(one, (int, float)) else math.inf for one in (relative, most)]
    return tuple(one if math.isfinite(one) else math.inf for one in numbers)  # type: ignore[return-value]


def _grouped(entries: Iterable[Entry], key: str) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        value = entry.get(key, entry.get("stage") if key == "section" else None)
        groups.setdefault(words.scalar(value), []).append(entry)
    return groups

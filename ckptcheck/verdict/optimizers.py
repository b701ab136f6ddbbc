"""What a result says of a checkpoint's optimizers and their param groups."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ckptcheck.finding import Json
from ckptcheck.optimizers.guessing import guess
from ckptcheck.state.checkpoint import Checkpoint, Naming
from ckptcheck.state.training_state import Entry, Optimizer
from ckptcheck.verdict.contents import NONE, in_result


def optimizers_part(checkpoint: Checkpoint, counters: Mapping[int, Any]) -> list[Json]:
    """One row an optimizer: its class as far as it can be told, what it keeps, where names come from, its step.

    `label` is the file's word for it; `orphans` are parameters with state that are in none of its groups.
    """
    return [_row(checkpoint, place, one, counters) for place, one in enumerate(checkpoint.state.optimizers)]


def groups_part(checkpoint: Checkpoint, counters: Mapping[int, Any]) -> list[Json]:
    """One row a param group: its members by name in order, and its hyperparameters."""
    return [
        {
            "optimizer": place,
            "group": number,
            "parameters": [*group.members],
            "hyperparameters": {key: _told(entry, counters) for key, entry in group.hyperparameters.items()},
        }
        for place, optimizer in enumerate(checkpoint.state.optimizers)
        for number, group in enumerate(optimizer.groups)
    ]


def _row(checkpoint: Checkpoint, place: int, optimizer: Optimizer, counters: Mapping[int, Any]) -> Json:
    label = checkpoint.optimizer_labels[place] if place < len(checkpoint.optimizer_labels) else ""
    keys = Counter(key for entries in optimizer.state.values() for key in entries)
    members = {member for group in optimizer.groups for member in group.members if member is not None}
    members = members or set(optimizer.state)
    return {
        "optimizer": place,
        "label": label or None,
        **_class_of(optimizer),
        "groups": len(optimizer.groups),
        "parameters": len(members),
        "with_state": sum(1 for name, entries in optimizer.state.items() if entries and name in members),
        "orphans": [name for name, entries in optimizer.state.items() if entries and name not in members],
        "state_keys": dict(keys),
        "steps": [{"step": step, "parameters": count} for step, count in _steps(optimizer, counters)],
        "naming": naming_part(checkpoint.namings[place]) if place < len(checkpoint.namings) else None,
    }


def naming_part(naming: Naming) -> Json:
    """Where an optimizer's parameter names come from."""
    return {"source": naming.source.value, "certain": naming.certain, "reason": naming.reason}


def _class_of(optimizer: Optimizer) -> dict[str, Json]:
    """The class as the file names it, else those that its keys fit; "class" is null where several or none do."""
    if optimizer.class_name is not None:
        names: tuple[str, ...] = (optimizer.class_name,)
        return {"class": optimizer.class_name, "classes": [*names], "class_certain": True}
    guessed = guess(optimizer)
    return {
        "class": guessed.names[0] if len(guessed.names) == 1 else None,
        "classes": [*guessed.names],
        "class_certain": guessed.certain,
    }


def _steps(optimizer: Optimizer, counters: Mapping[int, Any]) -> Iterator[tuple[Any, int]]:
    """Each value of a step counter that was read, with how many parameters have it, in ascending order."""
    entries = (entries["step"] for entries in optimizer.state.values() if "step" in entries)
    values = (entry.value if entry.value is not None else counters.get(id(entry)) for entry in entries)
    numbers = Counter(float(value) for value in values if isinstance(value, int | float))
    for number in sorted(numbers):
        yield int(number) if number.is_integer() else number, numbers[number]


def _told(entry: Entry, counters: Mapping[int, Any]) -> Json:
    if entry.value == NONE:
        return None
    value: Json = in_result(entry.value) if entry.value is not None else counters.get(id(entry))
    return f"tensor {entry.spec}" if value is None and entry.spec is not None else value

"""What a script changed while it should have rested: it is left out of moments, and its absence is no difference."""

from collections.abc import Mapping
from dataclasses import replace

from ckptcheck.state.training_state import Entry, Optimizer, TrainingState
from ckptcheck.trace.items import Item
from ckptcheck.trace.reading import Trace


def moved_items(trace: Trace) -> frozenset[Item]:
    """The items that a trace leaves out of some moments, by its own header."""
    return frozenset(Item(*one) for one in trace.header.get("moved") or ())


def with_the_moved(state: TrainingState, other: TrainingState, moved: frozenset[Item]) -> TrainingState:
    """A state with what it lacks since it moved, as the other one has it."""
    if not moved:
        return state
    lacking = {one.name for one in moved if one.kind == "param"} & other.parameters.keys() - state.parameters.keys()
    parameters = {**state.parameters, **{name: other.parameters[name] for name in lacking}}
    buffers = _filled(state.buffers, other.buffers, {one.name for one in moved if one.kind == "buffer"})
    averages = {one.name for one in moved if one.kind == "ema"}
    sections = dict(state.sections)
    if averages and "ema" in other.sections:
        sections["ema"] = _filled(sections.get("ema", {}), other.sections["ema"], averages)
    optimizers = tuple(
        _with_state(one, other.optimizers[place], {item for item in moved if item.kind == "state"}, place)
        if place < len(other.optimizers)
        else one
        for place, one in enumerate(state.optimizers)
    )
    return replace(state, parameters=parameters, buffers=buffers, sections=sections, optimizers=optimizers)


def _filled(own: Mapping[str, Entry], other: Mapping[str, Entry], names: set[str]) -> dict[str, Entry]:
    return {**own, **{name: other[name] for name in names if name in other and name not in own}}


def _with_state(one: Optimizer, other: Optimizer, moved: set[Item], place: int) -> Optimizer:
    state = {name: dict(entries) for name, entries in one.state.items()}
    for item in moved:
        entry = other.state.get(item.name, {}).get(item.key) if item.optimizer == place else None
        if entry is not None:
            state.setdefault(item.name, {}).setdefault(item.key, entry)
    return replace(one, state=state)

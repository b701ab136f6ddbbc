"""What a script's own load record says: what `load_state_dict` was given, against what was live before and after."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ckptcheck.state.training_state import Entry, TrainingState
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import GIVEN, LOAD, OVERWRITTEN, Item
from ckptcheck.trace.states import state_at


@dataclass(frozen=True, slots=True)
class LoadNote:
    """One call of `load_state_dict`.

    Attributes:
        section: model, optimizer, schedule or scaler.
        class_name: of the object.
        step: the step in progress, 0 before the first.
        name: a module's name, an optimizer's place, a schedule's or scaler's prefix; None for an object that is none
            of the training's.
        named: whether an optimizer's parameters were named in what it was given.
        assign: whether a module was told to take the given tensors themselves.
        given, matched: keys that a module was given, and that it has a place for.
        live_keys: the first keys that a module takes, where none of the given ones is among them.
        unexpected: the first keys that a module has no place for.
        raised: what the load raised, in one line; "" where it came to its end.
        unseen: why what was given is not known; "" where it is.
        is_last: whether no later load into the same object took its place.
    """

    section: str
    class_name: str
    step: int
    name: str | int | None
    named: bool = False
    assign: bool = False
    given: int = 0
    matched: int = 0
    live_keys: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    raised: str = ""
    unseen: str = ""
    is_last: bool = True


@dataclass(frozen=True, slots=True)
class ScriptLoads:
    """The loads of a script before its first step.

    `given` and `built` hold what was loaded and what stood in its place; `loaded` all of the training at its first
    forward pass, None where the script ended before its first update. Without `comparable` digests the contents of
    tensors are not to be compared.
    """

    given: TrainingState
    built: TrainingState
    loaded: TrainingState | None
    notes: tuple[LoadNote, ...]
    comparable: bool

    @property
    def raised(self) -> tuple[LoadNote, ...]:
        """Loads that raised and were not made again; of a stranger to the training only where it ended the script."""
        ours = (one for one in self.notes if self.loaded is None or one.name is not None or one.unseen)
        return tuple(one for one in ours if one.raised and one.is_last)


def script_loads(trace: Trace) -> ScriptLoads | None:
    """The loads with which a script began; None where it loaded nothing, or the trace is of no script."""
    begin = next((step for step, moment in trace.moments if moment == OVERWRITTEN), None)
    if begin is None or (begin, GIVEN) not in trace.moments:
        return None
    told, notes = _told(trace, begin)
    return ScriptLoads(
        given=_unsaid(state_at(trace, begin, GIVEN)),
        built=replace(state_at(trace, begin, OVERWRITTEN), step=None),
        loaded=replace(state_at(trace, begin, LOAD), step=None) if (begin, LOAD) in trace.moments else None,
        notes=notes,
        comparable=told["digest"] == trace.header["digest"],
    )


def _unsaid(given: TrainingState) -> TrainingState:
    """A state_dict does not say which parameters were trained, nor of which step it is."""
    parameters = {name: replace(one, requires_grad=None) for name, one in given.parameters.items()}
    return replace(given, parameters=parameters, step=None)


def later_loads(trace: Trace) -> tuple[LoadNote, ...]:
    """Loads of a training in progress, each with its step: best weights at the end, averaged ones, target networks."""
    places = {step for step, moment in trace.moments if moment == GIVEN and (step, OVERWRITTEN) not in trace.moments}
    return tuple(note for step in sorted(places) for note in _told(trace, step)[1])


def _told(trace: Trace, step: int) -> tuple[Mapping[str, Any], tuple[LoadNote, ...]]:
    text = trace.text(trace.digest(step, GIVEN, Item("structure", "loads")))
    told: dict[str, Any] = json.loads(text or '{"digest": "", "loads": []}')
    return told, tuple(_note(one) for one in told["loads"])


def _note(one: Mapping[str, Any]) -> LoadNote:
    return LoadNote(
        section=one["section"],
        class_name=one["class"],
        step=one["step"],
        name=one.get("name"),
        named=one.get("named", False),
        assign=one.get("assign", False),
        given=one.get("given") or 0,
        matched=one.get("matched") or 0,
        live_keys=tuple(one.get("live_keys", ())),
        unexpected=tuple(one.get("unexpected", ())),
        raised=one.get("raised", ""),
        unseen=one.get("unseen", ""),
        is_last=not one.get("superseded", False),
    )


def contents(state: TrainingState) -> set[tuple[object, bytes]]:
    """(spec, digest) of every parameter and buffer."""
    entries: list[Entry] = [*(one.entry for one in state.parameters.values()), *state.buffers.values()]
    return {(one.spec, one.digest.value) for one in entries if one.digest is not None}

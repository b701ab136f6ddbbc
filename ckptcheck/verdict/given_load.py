"""What a script gave to `load_state_dict`, as the load that rules judge: by the names and places of live objects."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ckptcheck.conventions.wrappers import Stripper
from ckptcheck.optimizers.guessing import guess
from ckptcheck.rules.loads.dry_run import DryRun, Paired
from ckptcheck.rules.loads.views import rows_of, sizes
from ckptcheck.state.checkpoint import Checkpoint, NameSource, Naming, numbered
from ckptcheck.state.raw import RawTree
from ckptcheck.state.scalars import finite_number
from ckptcheck.state.training_state import Entry, Group, Optimizer, Parameter, TrainingState, unnamed
from ckptcheck.trace.given_state import LoadNote, ScriptLoads, contents
from ckptcheck.verdict.left_out import state_filled
from ckptcheck.verdict.set_by_hand import Slot, with_the_keys, without_set_by_hand

METHOD: Final = "load_state_dict"
_NAMED: Final = Naming(NameSource.PARAM_NAMES, certain=True, reason="the groups that were given name their parameters")
_NUMBERED: Final = Naming(NameSource.NONE, certain=False, reason="the groups that were given number their parameters")
_TREE: Final = RawTree(Path(METHOD), "live", {}, 0)
_LOADED_APART: Final = ("schedule", "scaler")
_NOTHING: Final = Optimizer(None, ())


def is_resume(seen: ScriptLoads) -> bool:
    """Whether what was given is of a training in progress: an optimizer that has stepped, a schedule that has moved."""
    return any(one.state for one in seen.given.optimizers) or has_moved(seen.given)


def has_moved(state: TrainingState) -> bool:
    """Whether a schedule stands beyond its first step."""
    section = state.sections.get("schedule", {})
    positions = [finite_number(one) for path, one in section.items() if path.rpartition(".")[2] == "last_epoch"]
    return any(position is not None and position > 0 for position in positions)


def load_of(seen: ScriptLoads, moving: frozenset[Slot] = frozenset(), only: Sequence[str] = ()) -> DryRun:
    """The load as one of a checkpoint that holds what was given, its optimizers paired by what they were given to.

    `moving` are hyperparameters that the script sets itself for each step; `only` the globs that the recording was
    held to.
    """
    from ckptcheck.verdict.held import held_against

    loaded = seen.loaded if seen.comparable else None
    live = seen.loaded if seen.loaded is not None else seen.built
    built = _built(seen, live)
    named = {one.name for one in seen.notes if one.section == "optimizer" and one.is_last and one.named}
    pairs = [_pair(place, one, seen, built, named=place in named) for place, one in enumerate(built.optimizers)]
    if loaded is not None:
        loaded = _left_by_the_load(loaded, pairs, seen)
        pairs = [without_set_by_hand(one, loaded, moving) for one in pairs]
        loaded = state_filled(loaded, pairs, only)
        loaded = replace(loaded, optimizers=tuple(map(with_the_keys, loaded.optimizers, pairs)))
    checkpoint = Checkpoint(
        raw=_TREE,
        convention="plain",
        state=replace(
            seen.given, optimizers=tuple(one.file if one.file is not None else _NOTHING for one in pairs), step=None
        ),
        namings=tuple(_NAMED if one.named else _NUMBERED for one in pairs),
    )
    raised = [f"that of {one.class_name}: {one.raised}" for one in seen.raised]
    built = replace(built, optimizers=tuple(one.live for one in pairs))
    dry = DryRun(checkpoint, built, how=METHOD, raised="; ".join(raised) or None, pairs=tuple(pairs))
    dry = held_against(dry, loaded)
    if loaded is None:
        return dry
    given = contents(seen.given)
    entries = {**loaded.buffers, **{name: one.entry for name, one in loaded.parameters.items()}}
    found = {name for name, one in entries.items() if one.digest is not None and (one.spec, one.digest.value) in given}
    return replace(dry, held=dry.held | found)


def _built(seen: ScriptLoads, live: TrainingState) -> TrainingState:
    """All live objects as they were built: those that were given nothing may have been filled in any other way.

    Their parameters have no digest, and their optimizers no state where they have some now.
    """
    parameters = {
        name: seen.built.parameters.get(name) or replace(one, entry=Entry(one.entry.spec, None))
        for name, one in live.parameters.items()
    }
    known = {name: replace(one, requires_grad=live.parameters[name].requires_grad,
                           aliases=live.parameters[name].aliases) for name, one in parameters.items()}  # fmt: skip
    given = [bool(one.groups) for one in seen.built.optimizers]
    optimizers = tuple(
        seen.built.optimizers[place] if place < len(given) and given[place] else replace(one, state={})
        for place, one in enumerate(live.optimizers)
    )
    # Averages are modules, which are loaded as such.
    sections = {name: one for name, one in {**live.sections, **seen.built.sections}.items() if name in _LOADED_APART}
    if "schedule" not in seen.given.sections and has_moved(live):
        sections.pop("schedule")  # brought to its place in another way
    return replace(live, parameters=known, optimizers=optimizers, sections=sections)


def _pair(place: int, built: Optimizer, seen: ScriptLoads, live: TrainingState, *, named: bool) -> Paired:
    given = seen.given.optimizers[place] if place < len(seen.given.optimizers) else _NOTHING
    if not given.groups:
        return Paired(place, built if _begins_anew(place, built, seen) else replace(built, groups=()), None)
    own = _spelled(given, live.parameters) if named else None
    return Paired(
        place=place,
        live=built,
        file=own if own is not None else _by_place(given, built),
        named=own is not None,
        numbered=True,
        guesses=guess(given).names,
        file_place=place,
    )


def _begins_anew(place: int, built: Optimizer, seen: ScriptLoads) -> bool:
    """Whether an optimizer that was given nothing has no state, though its class keeps some."""
    return seen.loaded is not None and not seen.loaded.optimizers[place].state and bool(rows_of(built))


def _spelled(given: Optimizer, live: Mapping[str, Parameter]) -> Optimizer | None:
    """The given optimizer with the live spelling of its names; None where none of them is a live parameter's."""
    strip = Stripper(given.members)
    aliases = {alias: name for name, one in live.items() for alias in one.aliases}
    names: dict[str, str] = {}
    for name in given.members:
        bare = strip.strip(name)
        ends = [one for one in live if one.endswith(f".{bare}")] if bare not in live and bare not in aliases else []
        names[name] = ends[0] if len(ends) == 1 else aliases.get(bare, bare)
    if not live.keys() & set(names.values()) or len(set(names.values())) < len(names):
        return None
    return _renamed(given, names)


def _by_place(given: Optimizer, built: Optimizer) -> Optimizer:
    """The given optimizer with the live names at its places; with numbers where the groups are of other lengths."""
    if sizes(given) != sizes(built):
        index = iter(range(sum(sizes(given))))
        return _renamed(given, {name: numbered(next(index)) for name in given.members})
    names: dict[str, str] = {}
    for place, (theirs, ours) in enumerate(zip(given.groups, built.groups, strict=True)):
        for index_in, (name, live) in enumerate(zip(theirs.members, ours.members, strict=True)):
            if name is not None:
                names.setdefault(name, live if live is not None else unnamed(place, index_in))
    renamed = _renamed(given, names)
    groups = [Group(ours.members, one.hyperparameters) for ours, one in zip(built.groups, given.groups, strict=True)]
    return replace(renamed, groups=tuple(groups))


def _renamed(optimizer: Optimizer, names: Mapping[str, str]) -> Optimizer:
    groups = tuple(
        replace(one, members=tuple(names.get(name, name) if name is not None else None for name in one.members))
        for one in optimizer.groups
    )
    return replace(
        optimizer, groups=groups, state={names.get(name, name): one for name, one in optimizer.state.items()}
    )


def _left_by_the_load(loaded: TrainingState, pairs: list[Paired], seen: ScriptLoads) -> TrainingState:
    """The live state without what the script did to it after the load: a cast of the whole model is its own affair."""
    given, built = seen.given, seen.built
    averaged = any("train_mode" in group.hyperparameters for pair in pairs for group in pair.live.groups)
    parameters, buffers = dict(loaded.parameters), dict(loaded.buffers)
    for name in given.parameters.keys() & parameters.keys() & built.parameters.keys():
        own = given.parameters[name].entry
        # A schedule-free optimizer swaps two sets of weights.
        if averaged or _is_cast_later(own, built.parameters[name].entry, parameters[name].entry):
            parameters[name] = replace(parameters[name], entry=own)
    for name in given.buffers.keys() & buffers.keys() & built.buffers.keys():
        if _is_cast_later(given.buffers[name], built.buffers[name], buffers[name]):
            buffers[name] = given.buffers[name]
    return replace(loaded, parameters=parameters, buffers=buffers)


def _is_cast_later(given: Entry, built: Entry, now: Entry) -> bool:
    """Whether a tensor took what it was given as it is, and has become one of another dtype since."""
    return given.spec == built.spec and now.spec != built.spec


def fruitless(note: LoadNote, seen: ScriptLoads) -> DryRun | None:
    """A module's load that found none of its keys, by the keys as torch reads them; None where something came of it."""
    if note.section != "model" or not note.is_last or note.raised or not note.live_keys or not note.given:
        return None
    prefix = f"{note.name}." if note.name else ""
    live = seen.loaded.parameters if seen.loaded is not None else {}
    own = {name: one for name, one in seen.built.parameters.items() if name.startswith(prefix) and name in live}
    given = contents(seen.given)
    for name, one in own.items():
        now = live[name].entry
        held = now.digest is not None and (now.spec, now.digest.value) in given
        if now.digest != one.entry.digest or held or not seen.comparable:
            return None
    if not own:
        return None
    state = replace(seen.given, parameters=_named_only(note.unexpected), buffers={}, optimizers=(), sections={})
    built = replace(seen.built, parameters=_named_only(note.live_keys), buffers={}, optimizers=(), sections={})
    return DryRun(Checkpoint(_TREE, "plain", state), built, how=METHOD)


def _named_only(names: tuple[str, ...]) -> dict[str, Parameter]:
    return {name: Parameter(name, Entry(None, None), requires_grad=True) for name in names}

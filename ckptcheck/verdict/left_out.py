"""What `--only` left out of a script's record: nothing is claimed of it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from ckptcheck.rules.loads.dry_run import Paired
from ckptcheck.state.training_state import Entry, Optimizer, TrainingState
from ckptcheck.trace.file import Trace
from ckptcheck.trace.given_state import ScriptLoads

_NAMED: Final = ("param", "buffer")


def asked_for(trace: Trace) -> tuple[str, ...]:
    """The globs over names to which a recording was held; empty where it took everything."""
    return tuple(str(one) for one in trace.header.get("only") or ())


def idle_pattern(traces: Iterable[Trace]) -> str | None:
    """The first glob of `--only` that no recorded parameter or buffer matches; None where each has one."""
    listed = list(traces)
    names = {item.name for trace in listed for item, _ in trace.tensors() if item.kind in _NAMED}
    globs = dict.fromkeys(glob for trace in listed for glob in asked_for(trace))
    return next((glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)), None)


def is_left_out(name: str, only: Sequence[str]) -> bool:
    """Whether a recording held to such globs left a name out."""
    return bool(only) and not any(fnmatchcase(name, glob) for glob in only)


def with_left_out(seen: ScriptLoads, only: Sequence[str]) -> ScriptLoads:
    """The loads with the parameters and buffers that were left out taken for loaded as they were given."""
    if not only or seen.loaded is None:
        return seen
    loaded, given, built = seen.loaded, seen.given, seen.built
    parameters = {
        name: replace(one, entry=_as_loaded(given.parameters.get(name, one).entry, one.entry))
        for name, one in built.parameters.items()
        if is_left_out(name, only)
    }
    buffers = {
        name: _as_loaded(given.buffers.get(name, one), one)
        for name, one in built.buffers.items()
        if is_left_out(name, only)
    }
    whole = replace(loaded, parameters={**loaded.parameters, **parameters}, buffers={**loaded.buffers, **buffers})
    return replace(seen, loaded=whole)


def _as_loaded(given: Entry, built: Entry) -> Entry:
    """What a load leaves of a given entry; one that is cast holds what nobody knows."""
    return given if given.spec == built.spec else Entry(built.spec, None)


def state_filled(loaded: TrainingState, pairs: Sequence[Paired], only: Sequence[str]) -> TrainingState:
    """The state after the load with the optimizer state of what was left out, as it was given."""
    if not only:
        return loaded
    optimizers = [_filled(one, pair, only) for one, pair in zip(loaded.optimizers, pairs, strict=False)]
    return replace(loaded, optimizers=(*optimizers, *loaded.optimizers[len(optimizers) :]))


def _filled(loaded: Optimizer, pair: Paired, only: Sequence[str]) -> Optimizer:
    if pair.file is None:
        return loaded
    missing = {name: one for name, one in pair.file.state.items() if is_left_out(name, only)}
    return replace(loaded, state={**missing, **loaded.state})

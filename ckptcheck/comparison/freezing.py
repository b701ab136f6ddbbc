"""Freeze contracts held against a trace, step by step: what reached, moved or changed a frozen parameter."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from json import loads

from ckptcheck.comparison.groups import parse_groups
from ckptcheck.config import MOVES
from ckptcheck.trace.items import LOAD, NONE, PRESENCE, STEP, Item, Sample
from ckptcheck.trace.reading import Trace


@dataclass(frozen=True, slots=True)
class Breach:
    """One way in which one parameter broke its contract, at the first step at which it did.

    `what` is gradient, state, param, member or kept-state. `presence` is the gradient's presence in that step.
    `read` says whether an update read that gradient.
    """

    what: str
    parameter: str
    contract: str
    pattern: str
    step: int
    key: str = ""
    optimizer: int | None = None
    presence: str = "none"
    read: bool = False


@dataclass(slots=True)
class _Watched:
    pattern: str
    contract: str
    frozen_once: bool
    """Whether it is frozen by requires_grad at some step; the contract then binds from there on."""


@dataclass(frozen=True, slots=True)
class _Moment:
    step: int
    samples: Mapping[Item, Sample]
    frozen: frozenset[str]
    owners: Mapping[str, int]
    states: Mapping[str, tuple[Item, ...]]


def breaches(trace: Trace, freeze: Mapping[str, str]) -> tuple[tuple[Breach, ...], tuple[str, ...]]:
    """The first breach of each kind for each parameter, and the patterns that match no parameter.

    `freeze` maps globs over parameter names to contracts; the last glob that matches binds. A parameter
    that is frozen by requires_grad at some step is bound from that step on, any other from the start.
    """
    if not freeze:
        return (), ()
    names = [item.name for item, _ in trace.tensors() if item.kind == "param"]
    unmatched = tuple(pattern for pattern in freeze if not any(fnmatchcase(name, pattern) for name in names))
    moments = [(step, moment) for step, moment in trace.moments if moment in (LOAD, STEP)]
    watched = _watched(trace, names, freeze, moments)
    found: dict[tuple[str, str], Breach] = {}
    before: _Moment | None = None
    for step, moment in moments:
        now = _moment(trace, step, moment)
        if before is not None and moment == STEP:
            for breach in _breaches(before, now, watched):
                found.setdefault((breach.parameter, breach.what), breach)
        before = now
    return tuple(sorted(found.values(), key=lambda one: (one.step, one.parameter, one.what))), unmatched


def _watched(
    trace: Trace, names: list[str], freeze: Mapping[str, str], moments: list[tuple[int, str]]
) -> dict[str, _Watched]:
    once: set[str] = set()
    for step, moment in moments:
        once |= _frozen(trace, step, moment)
    watched = {}
    for name in dict.fromkeys(names):
        pattern = next((one for one in reversed(list(freeze)) if fnmatchcase(name, one)), None)
        if pattern is not None:
            watched[name] = _Watched(pattern, freeze[pattern], name in once)
    return watched


def _frozen(trace: Trace, step: int, moment: str) -> frozenset[str]:
    text = trace.text(trace.digest(step, moment, Item("structure", "frozen")))
    return frozenset(loads(text or "[]"))


def _moment(trace: Trace, step: int, moment: str) -> _Moment:
    samples = trace.samples(step, moment)
    groups = samples.get(Item("structure", "groups"))
    owners = {
        name: place
        for place, parsed in enumerate(parse_groups(trace.text(groups.digest) if groups else None))
        for group in parsed
        for name in group
        if name is not None
    }
    states: dict[str, tuple[Item, ...]] = {}
    for item in samples:
        if item.kind == "state":
            states[item.name] = (*states.get(item.name, ()), item)
    return _Moment(step, samples, _frozen(trace, step, moment), owners, states)


def _breaches(before: _Moment, now: _Moment, watched: Mapping[str, _Watched]) -> Iterator[Breach]:
    for name, one in watched.items():
        if one.frozen_once and name not in now.frozen:
            continue
        yield from _breaches_of(name, one, before, now)


def _breaches_of(name: str, one: _Watched, before: _Moment, now: _Moment) -> Iterator[Breach]:
    gradient = now.samples.get(Item("grad", name))
    presence = gradient.presence if gradient is not None and gradient.presence is not None else NONE
    owner = now.owners.get(name)
    read = owner is not None and _updated(now, owner)

    def breach(what: str, key: str = "") -> Breach:
        return Breach(what, name, one.contract, one.pattern, now.step, key, owner, PRESENCE[presence], read)

    if one.contract == "removed":
        if owner is not None:
            yield breach("member")
        return
    if presence != NONE and (one.contract != "no-grad" or _new_gradient(name, before, now)):
        yield breach("gradient")
    if one.contract in MOVES and not _same(before, now, Item("param", name)):
        yield breach("param")
    if one.contract == "hold":
        changed = next((item for item in _state_items(name, before, now) if not _same(before, now, item)), None)
        if changed is not None:
            yield breach("state", changed.key)
    if one.contract == "reset" and now.states.get(name):
        yield breach("kept-state", now.states[name][0].key)


def _updated(now: _Moment, owner: int) -> bool:
    updates = now.samples.get(Item("updates", optimizer=owner))
    return updates is not None and bool(updates.value)


def _new_gradient(name: str, before: _Moment, now: _Moment) -> bool:
    item = Item("grad", name)
    was, is_now = before.samples.get(item), now.samples[item]
    return was is None or was.digest != is_now.digest


def _state_items(name: str, before: _Moment, now: _Moment) -> list[Item]:
    return list(dict.fromkeys((*before.states.get(name, ()), *now.states.get(name, ()))))


def _same(before: _Moment, now: _Moment, item: Item) -> bool:
    was, is_now = before.samples.get(item), now.samples.get(item)
    return was is not None and is_now is not None and was.same_as(is_now)

"""Which state an optimizer holds for which parameter after a load: each deviation gets exactly one explanation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ckptcheck.comparison.groups import GroupMatch
from ckptcheck.comparison.states import StateDiff
from ckptcheck.state.training_state import Entry, Optimizer, TrainingState

COUNTERS: Final = frozenset({"step", "steps", "k", "n_iter", "func_evals", "num_updates"})
"""State keys that count updates."""

Entries: TypeAlias = Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in an optimizer, with the parameter that the left side has there."""

    group: int
    index: int
    parameter: str


@dataclass(frozen=True, slots=True)
class Binding:
    """How one optimizer's right side deviates from its left, by parameter name.

    stale      slots in which the right holds a tensor that no module holds, with the name that the left has there
    left_only  members on the left only; `right_only` on the right only (stale slots are neither)
    regrouped  members of both, with (left group, right group) where these do not answer to each other
    permuted   parameters that carry the state of another parameter: right name to left name
    missing    parameters without any state on the right; `none_loaded` says that these are all that had some
    as_built   of these, the ones whose state is there as the optimizer made it, before anything was loaded
    partial    parameters that lack some of their keys, with these keys
    reshaped   (parameter, key) whose shape differs
    counted    (parameter, key) of differing update counters
    valued     (parameter, key) of any other differing or added entry
    """

    optimizer: int
    stale: tuple[Slot, ...]
    left_only: tuple[str, ...]
    right_only: tuple[str, ...]
    regrouped: Mapping[str, tuple[int, int]]
    permuted: Mapping[str, str]
    missing: tuple[str, ...]
    none_loaded: bool
    as_built: tuple[str, ...]
    partial: Mapping[str, tuple[str, ...]]
    reshaped: tuple[tuple[str, str], ...]
    counted: tuple[tuple[str, str], ...]
    valued: tuple[tuple[str, str], ...]


def bindings(diff: StateDiff, built: TrainingState | None = None) -> tuple[Binding, ...]:
    """One binding for each optimizer that both sides have; `built` is the right side before anything was loaded."""
    before = built.optimizers if built is not None else ()
    return tuple(_binding(*one, _state_before(before, one[0])) for one in diff.optimizers)


def _state_before(optimizers: tuple[Optimizer, ...], place: int) -> Mapping[str, Entries]:
    return optimizers[place].state if place < len(optimizers) else {}


def _binding(
    place: int, left: Optimizer, right: Optimizer, match: GroupMatch, before: Mapping[str, Entries]
) -> Binding:
    as_built = _as_built(left, right, before)
    right = replace(right, state={name: one for name, one in right.state.items() if name not in as_built})
    stale = tuple(_stale(left, right))
    members = [{name for group in side.groups for name in group.members if name is not None} for side in (left, right)]
    held = members[1] | {slot.parameter for slot in stale}
    permuted = {name: owner for name, owner in permutation(left, right).items() if stale or name in members[1]}
    with_state = [name for name in left.state if left.state[name] and name in held]
    lost = {slot.parameter for slot in stale} | set(permuted)
    missing = tuple(name for name in with_state if not right.state.get(name) and name not in lost)
    compared = [name for name in left.state if right.state.get(name) and name not in permuted]
    kinds: dict[str, list[tuple[str, str]]] = {"partial": [], "reshaped": [], "counted": [], "valued": []}
    for name in compared:
        for kind, key in _deviations(left.state[name], right.state[name]):
            kinds[kind].append((name, key))
    partial: dict[str, tuple[str, ...]] = {}
    for name, key in kinds["partial"]:
        partial[name] = (*partial.get(name, ()), key)
    return Binding(
        optimizer=place,
        stale=stale,
        left_only=tuple(sorted(members[0] - held)),
        right_only=tuple(sorted(members[1] - members[0])),
        regrouped=regrouped(left, right, match),
        permuted=permuted,
        missing=missing,
        none_loaded=bool(missing) and len(missing) == len(with_state),
        as_built=tuple(name for name in missing if name in as_built),
        partial=partial,
        reshaped=tuple(kinds["reshaped"]),
        counted=tuple(kinds["counted"]),
        valued=tuple(kinds["valued"]),
    )


def _as_built(left: Optimizer, right: Optimizer, before: Mapping[str, Entries]) -> frozenset[str]:
    """Parameters whose state the load did not touch: Adagrad, for one, makes all of it when it is built."""
    return frozenset(
        name for name, entries in before.items()
        if entries and _contents(right.state.get(name, {})) == _contents(entries)
        and _contents(left.state.get(name, {})) != _contents(entries)
    )  # fmt: skip


def _contents(entries: Entries) -> dict[str, tuple[object, object]]:
    return {key: (one.spec, one.digest) for key, one in entries.items()}


def _stale(left: Optimizer, right: Optimizer) -> Iterator[Slot]:
    for group, (one, other) in enumerate(zip(left.groups, right.groups, strict=False)):
        for index, (name, held) in enumerate(zip(one.members, other.members, strict=False)):
            if name is not None and held is None:
                yield Slot(group, index, name)


def regrouped(left: Optimizer, right: Optimizer, match: GroupMatch) -> dict[str, tuple[int, int]]:
    """Members of both whose group on the right does not answer to theirs on the left: (left group, right group)."""
    moved, first = {}, left.first_groups()
    for place, group in enumerate(right.groups):
        for name in group.members:
            was = first.get(name) if name is not None else None
            if name is not None and was is not None and match.left_of.get(place) != was:
                moved[name] = (was, place)
    return moved


def permutation(left: Optimizer, right: Optimizer) -> dict[str, str]:
    """Parameters on the right that carry the state of another parameter on the left, by their digests.

    Only tensors of more than one element count, and only content that a single parameter had: counters and
    all-zero moments are alike everywhere and prove nothing.
    """
    owners: dict[tuple[tuple[str, bytes], ...], list[str]] = {}
    for name, entries in left.state.items():
        owners.setdefault(_signature(entries), []).append(name)
    owners.pop((), None)
    found = {}
    for name, entries in right.state.items():
        owner = owners.get(_signature(entries), [])
        if len(owner) == 1 and owner[0] != name and _signature(left.state.get(name, {})) != _signature(entries):
            found[name] = owner[0]
    return found


def _signature(entries: Entries) -> tuple[tuple[str, bytes], ...]:
    return tuple(
        sorted(
            (key, one.digest.value)
            for key, one in entries.items()
            if one.spec is not None and one.spec.numel > 1 and one.digest is not None
        )
    )


def _deviations(left: Entries, right: Entries) -> Iterator[tuple[str, str]]:
    for key in {**left, **right}:
        one, other = left.get(key), right.get(key)
        if other is None or (one is not None and one.spec is not None and other.spec is None and other.value == "None"):
            yield "partial", key  # a None in place of a tensor starts it anew, as if it were not there
        elif one is None:
            yield "valued", key
        elif _shape(one) != _shape(other):
            yield "reshaped", key
        elif one.digest != other.digest or one.spec != other.spec:
            yield ("counted" if key in COUNTERS and one.value != other.value else "valued"), key


def _shape(entry: Entry) -> tuple[int, ...]:
    """The shape; of a plain value that of a scalar tensor, which may stand for it."""
    return entry.spec.shape if entry.spec is not None else ()

"""Two training states compared by name, without bytes: what is missing, what differs, who is in which group."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ckptcheck.comparison.groups import GroupMatch, match_groups
from ckptcheck.state.training_state import SECTIONS, Entry, Optimizer, TrainingState


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """One entry that differs between two states; a side is None where the entry is absent.

    `section` is param, buffer, grad, state, hyper, rng, schedule, scaler, ema, data or extra. `name` is a
    parameter, buffer, generator or path; `key` a state key or hyperparameter; `group` the left side's group.
    """

    section: str
    name: str
    left: Entry | None
    right: Entry | None
    key: str = ""
    optimizer: int | None = None
    group: int | None = None

    @property
    def changed(self) -> bool:
        """Whether both sides have the entry, with other content."""
        return self.left is not None and self.right is not None


@dataclass(frozen=True, slots=True)
class StateDiff:
    """What differs between two training states, by name.

    `groups` has one match for each optimizer that both sides have. `unfrozen` and `frozen` name the parameters
    that only the left, only the right side does not train. `untied` and `tied` name pairs that only the left, only
    the right side ties.
    """

    left: TrainingState
    right: TrainingState
    entries: tuple[EntryDifference, ...]
    groups: tuple[GroupMatch, ...]
    unfrozen: tuple[str, ...]
    frozen: tuple[str, ...]
    untied: tuple[tuple[str, str], ...]
    tied: tuple[tuple[str, str], ...]

    def of(self, section: str) -> tuple[EntryDifference, ...]:
        """The differing entries of one section."""
        return tuple(one for one in self.entries if one.section == section)

    @property
    def optimizers(self) -> Iterator[tuple[int, Optimizer, Optimizer, GroupMatch]]:
        """Each optimizer that both sides have: place, left, right, how the groups match."""
        pairs = zip(self.left.optimizers, self.right.optimizers, self.groups, strict=False)
        return ((place, *pair) for place, pair in enumerate(pairs))


def compare_states(left: TrainingState, right: TrainingState) -> StateDiff:
    """Compare everything that both states can say; nothing is fetched."""
    both = list(zip(left.optimizers, right.optimizers, strict=False))
    matches = tuple(
        match_groups([g.members for g in one.groups], [g.members for g in other.groups]) for one, other in both
    )
    frozen = [{name for name, one in side.parameters.items() if one.requires_grad is False} for side in (left, right)]
    known = left.parameters.keys() & right.parameters.keys()
    ties = [_ties(side) for side in (left, right)]
    return StateDiff(
        left=left,
        right=right,
        entries=tuple(_entries(left, right, both, matches)),
        groups=matches,
        unfrozen=tuple(sorted((frozen[0] - frozen[1]) & known)),
        frozen=tuple(sorted((frozen[1] - frozen[0]) & known)),
        untied=tuple(sorted(ties[0] - ties[1])),
        tied=tuple(sorted(ties[1] - ties[0])),
    )


def _entries(
    left: TrainingState,
    right: TrainingState,
    both: list[tuple[Optimizer, Optimizer]],
    matches: tuple[GroupMatch, ...],
) -> Iterator[EntryDifference]:
    yield from _unlike("param", _values(left), _values(right))
    yield from _unlike("buffer", left.buffers, right.buffers)
    yield from _unlike("grad", _gradients(left), _gradients(right))
    for place, (one, other) in enumerate(both):
        for name in {**one.state, **other.state}:
            yield from _unlike("state", one.state.get(name, {}), other.state.get(name, {}), owner=name, optimizer=place)
        for group, partner in matches[place].left_of.items():
            pair = one.groups[partner].hyperparameters, other.groups[group].hyperparameters
            yield from _unlike("hyper", *pair, owner="", optimizer=place, group=partner)
    for section in SECTIONS:
        yield from _unlike(section, left.sections.get(section, {}), right.sections.get(section, {}))
    yield from (one for one in _unlike("rng", left.rng, right.rng) if one.changed)


def _values(state: TrainingState) -> dict[str, Entry]:
    return {name: one.entry for name, one in state.parameters.items()}


def _gradients(state: TrainingState) -> dict[str, Entry]:
    return {name: one.grad for name, one in state.parameters.items() if one.grad is not None}


def _unlike(
    section: str,
    left: Mapping[str, Entry],
    right: Mapping[str, Entry],
    *,
    owner: str | None = None,
    optimizer: int | None = None,
    group: int | None = None,
) -> Iterator[EntryDifference]:
    for key in {**left, **right}:
        one, other = left.get(key), right.get(key)
        if one is None or other is None or one.spec != other.spec or one.digest != other.digest:
            name, inner = (key, "") if owner is None else (owner, key)
            yield EntryDifference(section, name, one, other, inner, optimizer, group)


def _ties(state: TrainingState) -> set[tuple[str, str]]:
    return {(name, alias) for name, one in state.parameters.items() for alias in one.aliases}

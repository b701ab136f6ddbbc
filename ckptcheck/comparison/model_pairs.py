"""The weights of two sides, paired by name: ties, aliases that one side drops, parameters and buffers alike."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ckptcheck.comparison.pairs import Pair, Pairing
from ckptcheck.state.training_state import Entry, TrainingState

SHOWN: Final = 3
"""Names in a note; of more, their count is told."""


@dataclass(frozen=True, slots=True)
class Names:
    """One side's weights: `owners` maps a name to its entry and role, `owner_of` a tied further name to its first."""

    owners: Mapping[str, tuple[Entry, str]]
    owner_of: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, state: TrainingState) -> "Names":
        """Parameters and buffers in one namespace: many files cannot tell one from the other."""
        owners = {name: (one.entry, "param") for name, one in state.parameters.items()}
        owners.update((name, (entry, "buffer")) for name, entry in state.buffers.items() if name not in owners)
        aliases = {alias: name for name, one in state.parameters.items() for alias in one.aliases}
        return cls(owners, {alias: name for alias, name in aliases.items() if alias not in owners})

    def find(self, name: str) -> str | None:
        """The first name of the tensor that goes by `name`; None without one."""
        return name if name in self.owners else self.owner_of.get(name)


def pair_models(left: Names, right: Names, pairing: Pairing) -> None:
    """Add a pair for each name that a side has; a name that is tied on one side only is held against the tie."""
    partner = _partners(left, right, pairing)
    taken = set(partner.values())
    seen = set(left.owners)
    for alias, owner in left.owner_of.items():
        found = right.find(alias)
        if found is not None:
            _add(pairing, alias, left.owners[owner], right.owners[found])
            taken.add(found)
            seen.add(alias)
    for name, (entry, role) in right.owners.items():
        if name not in taken:
            pairing.pairs.append(Pair("model", name, None, None, entry, role))
    _note_ties(left, right, partner, pairing)
    _pair_unlike_aliases(left, right, partner, pairing)


def _partners(left: Names, right: Names, pairing: Pairing) -> dict[str, str]:
    """Pair the left's tensors; returns the right's first name of each that has a partner."""
    aliases: dict[str, list[str]] = {}
    for alias, owner in left.owner_of.items():
        aliases.setdefault(owner, []).append(alias)
    partner: dict[str, str] = {}
    for name, owned in left.owners.items():
        found = next((one for one in map(right.find, (name, *aliases.get(name, ()))) if one is not None), None)
        if found is None:
            pairing.pairs.append(Pair("model", name, None, owned[0], None, owned[1]))
        else:
            partner[name] = found
            _add(pairing, name, owned, right.owners[found])
    return partner


def _add(pairing: Pairing, name: str, left: tuple[Entry, str], right: tuple[Entry, str]) -> None:
    # A side that cannot tell calls every floating tensor a parameter: "buffer" is the surer word.
    role = "buffer" if "buffer" in (left[1], right[1]) else left[1]
    pairing.pairs.append(Pair("model", name, None, left[0], right[0], role))


def _note_ties(left: Names, right: Names, partner: Mapping[str, str], pairing: Pairing) -> None:
    back = {found: name for name, found in partner.items()}
    for side, one, other, across in (("left", left, right, partner), ("right", right, left, back)):
        broken, dropped = [], []
        for alias, owner in one.owner_of.items():
            found = other.find(alias)
            if found is None:
                dropped += [f"{alias} = {owner}"] if owner in across else []
            elif found != other.find(owner) and other.find(owner) is not None:
                broken.append(f"{alias} = {owner}")
        if broken:
            pairing.notes.append(f"tied on the {side} only: {listed(broken)}")
        if dropped:
            pairing.notes.append(f"tied names that only the {side} keeps: {listed(dropped)}")


def _pair_unlike_aliases(left: Names, right: Names, partner: Mapping[str, str], pairing: Pairing) -> None:
    """Names of one tied tensor that each side alone has: a file may drop an alias, but not keep another one."""
    ours, theirs = _names_by_owner(left), _names_by_owner(right)
    for name, found in partner.items():
        lost = [one for one in ours[name] if right.find(one) is None]
        new = [one for one in theirs[found] if left.find(one) is None]
        if lost and new:
            entry, role = left.owners[name]
            other, other_role = right.owners[found]
            pairing.pairs.extend(Pair("model", one, None, entry, None, role) for one in lost)
            pairing.pairs.extend(Pair("model", one, None, None, other, other_role) for one in new)


def _names_by_owner(names: Names) -> dict[str, list[str]]:
    found = {owner: [owner] for owner in names.owners}
    for alias, owner in names.owner_of.items():
        found[owner].append(alias)
    return found


def listed(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    rest = len(every) - SHOWN
    return ", ".join(every[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")

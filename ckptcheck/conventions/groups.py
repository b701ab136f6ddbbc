"""An optimizer's state_dict as an optimizer of the training state: groups and state by parameter name."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ckptcheck.conventions.entries import entries
from ckptcheck.conventions.naming import Members, NamedMembers, is_index, name_members
from ckptcheck.conventions.weights import Weights, whole_shape
from ckptcheck.optimizers.guessing import Guess, guess_from
from ckptcheck.optimizers.shapes import ShapeTest
from ckptcheck.state.checkpoint import Naming, numbered
from ckptcheck.state.raw import Raw
from ckptcheck.state.training_state import Entry, Group, Optimizer

MEMBERSHIP: Final = ("params", "param_names")
"""Keys of a group that say who is in it, and are no hyperparameters."""
MAX_TOLD: Final = 8
"""Keys of state in no group that a note names."""


@dataclass(frozen=True, slots=True)
class Explained:
    """An optimizer with its names, and what stood beside its groups and state, by key.

    `notes` say what a reader should know of it; each goes on after the optimizer's name.
    """

    optimizer: Optimizer
    naming: Naming
    rest: Mapping[str, Raw] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def is_optimizer(value: Raw) -> bool:
    """Whether this is an optimizer's state_dict: a list of groups, and state where it has any."""
    if not isinstance(value, Mapping):
        return False
    groups, state = value.get("param_groups"), value.get("state", {})
    is_list = isinstance(groups, list | tuple) and all(isinstance(group, Mapping) for group in groups)
    return is_list and isinstance(state, Mapping) and bool(groups or state)


def names_in(value: Raw) -> list[str]:
    """The parameter names that an optimizer's state_dict itself holds, as the file writes them."""
    if not is_optimizer(value):
        return []
    found: list[Any] = []
    for group in value["param_groups"]:
        found.extend(_listed(group, "param_names"))
        found.extend(_listed(group, "params"))
    found.extend(value.get("state", {}))
    return [name for name in found if _is_name(name)]


def member_count(value: Raw) -> int:
    """How many parameters the groups of an optimizer's state_dict list."""
    return sum(len(_listed(group, "params")) for group in value["param_groups"])


def explain_optimizer(value: Raw, model: Weights, names: Sequence[str] | None = None) -> Explained:
    """One optimizer's state_dict. `names` are the user's, one for each index in the groups' order."""
    state = _by_key(value)
    kept = {key: entries(one) for key, one in state.items()}
    param_names = _param_names(value["param_groups"])
    # Names that fit no list of parameters are no names: what they are is kept.
    membership = MEMBERSHIP if param_names or not _has_names(value["param_groups"]) else ("params",)
    settings = [_settings(group, membership) for group in value["param_groups"]]
    hyperparameters = [entries(one) if one else {} for one in settings]
    guess = _guess(hyperparameters, kept)
    test = ShapeTest(guess.rows, certain=guess.certain)
    members = Members(
        groups=tuple(tuple(_listed(group, "params")) for group in value["param_groups"]),
        param_names=param_names,
        signatures={key: test.signature(state_shapes(one)) for key, one in kept.items()},
        decays=tuple(decay_of(one) for one in hyperparameters),
    )
    named = name_members(members, model, test, names)
    optimizer = assembled(members.groups, hyperparameters, kept, named, model)
    rest = {key: one for key, one in value.items() if key not in ("state", "param_groups")}
    return Explained(optimizer, named.naming, rest, tuple(_notes(members, kept, guess)))


def assembled(
    groups: Sequence[Sequence[Any]],
    hyperparameters: Sequence[Mapping[str, Entry]],
    kept: Mapping[Any, Mapping[str, Entry]],
    named: NamedMembers,
    model: Weights,
) -> Optimizer:
    """The optimizer whose group members and state go by the names that were found; strangers keep their key."""
    state: dict[str, Mapping[str, Entry]] = {}
    order = dict.fromkeys(key for group in groups for key in group)
    for key in (*order, *(key for key in kept if key not in order)):
        if key not in kept:
            continue
        name = named.names.get(key) or (model.name_of(key) if _is_name(key) else numbered(key))
        state[name if name not in state else f"{name} ({key})"] = kept[key]
    return Optimizer(
        class_name=None,
        groups=tuple(
            Group(tuple(named.names[key] for key in keys), values)
            for keys, values in zip(groups, hyperparameters, strict=True)
        ),
        state=state,
    )


def _by_key(value: Raw) -> dict[Any, Raw]:
    """The state by the groups' own keys: an index that a format turned into text is an index again."""
    state = value.get("state", {})
    listed = {key for group in value["param_groups"] for key in _listed(group, "params")}
    taken = {key for key in state if not isinstance(key, str)} | listed
    found: dict[Any, Raw] = {}
    for key, one in state.items():
        index = int(key) if isinstance(key, str) and is_index(key) and key not in listed else key
        found[key if index != key and (index in found or index in taken & state.keys()) else index] = one
    return found


def _listed(group: Mapping[Any, Raw], key: str) -> list[Any]:
    """The keys or names in a group's list; what cannot be one is told by its place."""
    listed = group.get(key)
    if not isinstance(listed, list | tuple):
        return []
    return [one if isinstance(one, int | str) else f"<{key}[{place}]>" for place, one in enumerate(listed)]


def _settings(group: Mapping[Any, Raw], membership: Collection[str]) -> dict[Any, Raw]:
    """A group without what says who is in it; a membership of another form than a list of keys is kept."""
    return {
        key: one
        for key, one in group.items()
        if key not in membership
        or not isinstance(one, list | tuple)
        or not all(isinstance(member, int | str) for member in one)
    }


def _param_names(groups: Sequence[Mapping[Any, Raw]]) -> tuple[tuple[str, ...], ...] | None:
    """The names that the groups list, where all do and each list is as long as the group's parameters."""
    found = tuple(tuple(_listed(group, "param_names")) for group in groups)
    fits = all(len(names) == len(_listed(group, "params")) for names, group in zip(found, groups, strict=True))
    return found if any(found) and fits and all(_is_name(name) for names in found for name in names) else None


def _has_names(groups: Sequence[Mapping[Any, Raw]]) -> bool:
    return any(_listed(group, "param_names") for group in groups)


def _guess(hyperparameters: Sequence[Mapping[str, Entry]], kept: Mapping[Any, Mapping[str, Entry]]) -> Guess:
    values = {path: one.value for group in hyperparameters for path, one in group.items()}
    return guess_from(values, {path for one in kept.values() for path in one})


def _notes(members: Members, kept: Mapping[Any, Mapping[str, Entry]], guess: Guess) -> Iterator[str]:
    listed = set(members.keys)
    strays = [key for key in kept if key not in listed] if listed else []
    if strays:
        told = ", ".join(map(str, strays[:MAX_TOLD])) + (", ..." if len(strays) > MAX_TOLD else "")
        what = "index" if is_index(strays[0]) else "parameter"
        yield f"holds state of {len(strays)} that no group lists ({what} {told}): it belongs to no parameter"
    if len(listed) > 1 and kept and guess.rows and all(row.whole_list for row in guess.rows):
        yield f"is {guess.rows[0].name}, which keeps one state for all its parameters, with the first of them"


def decay_of(hyperparameters: Mapping[str, Entry]) -> float | None:
    """The weight decay of a group, None where it is not told or no plain number."""
    entry = hyperparameters.get("weight_decay")
    value = entry.value if entry is not None else None
    return float(value) if isinstance(value, int | float) else None


def state_shapes(kept: Mapping[str, Entry]) -> dict[str, tuple[int, ...]]:
    """The shape of each state tensor of a parameter, by key, of all ranks' pieces together."""
    return {key: shape for key, one in kept.items() if (shape := whole_shape(one)) is not None}


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and not is_index(key)

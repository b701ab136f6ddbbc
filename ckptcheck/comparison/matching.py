"""Two checkpoints paired: weights by name, optimizers by parameter, the rest by path."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ckptcheck.comparison.checkpoint_diff import DiffOptions
from ckptcheck.comparison.chosen import MODEL, aligned, chosen_weights
from ckptcheck.comparison.model_pairs import Names, pair_models
from ckptcheck.comparison.optimizer_names import rename
from ckptcheck.comparison.optimizer_pairs import pair_optimizers
from ckptcheck.comparison.optimizer_partners import Side, doubts
from ckptcheck.comparison.pairs import Pairing, pair_surroundings
from ckptcheck.errors import UsageError
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.training_state import Entry, TrainingState


def pair_checkpoints(left: Checkpoint, right: Checkpoint, options: DiffOptions) -> Pairing:
    """Everything that either has, with its partner. Raises UsageError for options that do not fit the checkpoints."""
    pairing = Pairing()
    name_of = _Renaming(options.renames)
    if options.left_section or options.right_section:
        _pair_chosen(left, right, options, name_of, pairing)
        return pairing
    left = _renamed(left, name_of)
    pairing.notes.extend(name_of.sentences())
    names = Names.of(left.state), Names.of(right.state)
    pair_models(*names, pairing)
    sides = Side.of(left), Side.of(right)
    pair_optimizers(*sides, _ties(left.state, right.state), pairing)
    pairing.notes.extend(doubts(*sides, pairing.optimizers))
    pair_surroundings(_undescribed(left, right, pairing), _undescribed(right, left, pairing), pairing)
    for side, one, other in (("left", left, right), ("right", right, left)):
        taken = [prefix for prefix in one.stripped if prefix not in other.stripped]
        if taken:
            pairing.notes.append(f"taken off the names on the {side}: {', '.join(taken)}")
    return pairing


def _undescribed(one: Checkpoint, other: Checkpoint, pairing: Pairing) -> TrainingState:
    """The state of `one` without descriptions of the model that `other` lacks as a whole."""
    extra = one.state.sections.get("extra", {})
    lacking = [path for path in one.descriptions if not _under(path, other.state.sections.get("extra", {}))]
    own = {path for description in lacking for path in _under(description, extra)}
    if not own:
        return one.state
    pairing.notes.append(f"only one side has {', '.join(lacking)}, which describes the model: not compared")
    kept = {path: entry for path, entry in extra.items() if path not in own}
    return replace(one.state, sections={**one.state.sections, "extra": kept})


def _under(prefix: str, entries: Mapping[str, Entry]) -> list[str]:
    return [path for path in entries if path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))]


def _pair_chosen(
    left: Checkpoint, right: Checkpoint, options: DiffOptions, name_of: "_Renaming", pairing: Pairing
) -> None:
    one = chosen_weights(left, options.left_section, "left")
    other = chosen_weights(right, options.right_section, "right")
    owners = {name_of(name): owned for name, owned in one.owners.items()}
    name_of.check(len(one.owners), len(owners))
    one, other, said = aligned(Names(owners, {name_of(name): name_of(to) for name, to in one.owner_of.items()}), other)
    pairing.notes.extend([*name_of.sentences(), *([said] if said else [])])
    pair_models(one, other, pairing)
    sections = options.left_section or MODEL, options.right_section or MODEL
    pairing.not_compared.append(f"anything but {sections[0]} on the left and {sections[1]} on the right")


def _ties(*states: TrainingState) -> dict[str, tuple[str, ...]]:
    """All names of each tied parameter, by each of them."""
    ties: dict[str, tuple[str, ...]] = {}
    for state in states:
        for name, parameter in state.parameters.items():
            if parameter.aliases:
                names = (name, *parameter.aliases)
                known = {id(tie): tie for one in names if (tie := ties.get(one)) is not None}  # each tie once
                together = tuple(dict.fromkeys(one for tie in (*known.values(), names) for one in tie))
                ties.update(dict.fromkeys(together, together))
    return ties


def _renamed(left: Checkpoint, name_of: "_Renaming") -> Checkpoint:
    """The left side under the names that the user's patterns give."""
    if not name_of.is_asked:
        return left
    state = left.state
    parameters = {
        name_of(name): replace(one, name=name_of(name), aliases=tuple(map(name_of, one.aliases)))
        for name, one in state.parameters.items()
    }
    buffers = {name_of(name): entry for name, entry in state.buffers.items()}
    name_of.check(len(state.parameters) + len(state.buffers), len(parameters) + len(buffers))
    optimizers = tuple(rename(one, name_of) for one in state.optimizers)
    return replace(left, state=replace(state, parameters=parameters, buffers=buffers, optimizers=optimizers))


class _Renaming:
    """The user's patterns, applied in their order; counts the names that each changes."""

    def __init__(self, renames: tuple[tuple[str, str], ...]) -> None:
        given = [(f"{pattern}={replacement}", _substitution(pattern, replacement)) for pattern, replacement in renames]
        self._changed: dict[str, set[str]] = {option: set() for option, _ in given}
        self._renames = given

    @property
    def is_asked(self) -> bool:
        """Whether there is any pattern."""
        return bool(self._renames)

    def check(self, before: int, after: int) -> None:
        """UsageError where two names have become one."""
        if after < before:
            given = ", ".join(f"'{option}'" for option in self._changed)
            raise UsageError(f"--map {given} gives several tensors of the left one name: make it narrower")

    def __call__(self, name: str) -> str:
        for option, substitute in self._renames:
            changed = substitute(name)
            if changed != name:
                self._changed[option].add(name)
                name = changed
        return name

    def sentences(self) -> list[str]:
        """How many names each pattern changed."""
        return [
            f"--map '{option}' changed {len(names)} {'name' if len(names) == 1 else 'names'} of the left"
            for option, names in self._changed.items()
        ]


def _substitution(pattern: str, replacement: str) -> Callable[[str], str]:
    try:
        compiled = re.compile(pattern)
        compiled.sub(replacement, "")
    except (re.error, IndexError) as trouble:
        raise UsageError(f"--map {pattern}={replacement}: no regular expression ({trouble})") from trouble
    return lambda name: compiled.sub(replacement, name, count=1)  # else ".*" would match the empty end as well

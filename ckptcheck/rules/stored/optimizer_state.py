"""CK2: the optimizer state of one checkpoint, parameter by parameter."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ckptcheck.finding import Place, Severity
from ckptcheck.optimizers.row import Row
from ckptcheck.rules.rule import Evidence, Unjudged, also
from ckptcheck.rules.runs import completeness as runs
from ckptcheck.rules.stored.demands import why_nothing_is_missed
from ckptcheck.rules.stored.expected_state import base_keys, keeps_nothing, missing_keys, rows_of
from ckptcheck.rules.stored.missing_state import Idle, Lost, runs_of, told_apart
from ckptcheck.rules.stored.stored import Purpose, Stored
from ckptcheck.rules.stored.writers import LEAVES_FROZEN_OUT, NEVER_TRAINED, epochs_made, known
from ckptcheck.rules.words import count, kept, names
from ckptcheck.state.checkpoint import numbered
from ckptcheck.state.raw import RawTensor
from ckptcheck.state.training_state import Optimizer

_LAST_EPOCH: Final = "last_epoch"
_LOST_FIX: Final = "look for what drops this parameter's entry from the saved state; its moments restart from zero"


@dataclass(frozen=True, slots=True)
class Kept:
    """One optimizer and what it keeps.

    Attributes:
        place: from 0.
        rows, certain: what its class can be.
        members: its parameters with the number of each one's first group, in the groups' order.
        keys: of each that has state, the keys.
    """

    place: int
    optimizer: Optimizer
    rows: tuple[Row, ...]
    certain: bool
    members: Mapping[str, int]
    keys: Mapping[str, frozenset[str]]

    @property
    def is_one_state(self) -> bool:
        """Whether all parameters have one state, under the first."""
        return bool(self.rows) and all(row.whole_list for row in self.rows)

    @property
    def stateful(self) -> list[str]:
        """Members whose group's hyperparameters make the class keep something; none where the class is not known."""
        if not self.rows:
            return []
        silent = [keeps_nothing(self.rows, group.hyperparameters) for group in self.optimizer.groups]
        return [name for name, group in self.members.items() if not silent[group]]

    @property
    def without(self) -> list[str]:
        """Members that have no state and could have some."""
        silent = set() if not self.rows else set(self.members) - set(self.stateful)
        return [name for name in self.members if name not in self.keys and name not in silent]


class Likeness(NamedTuple):
    """What decides which keys a class keeps: a parameter's group, and how many dimensions it has."""

    group: int | None
    dimensions: int


def optimizers_of(stored: Stored) -> list[Kept]:
    """Every optimizer of a checkpoint with what it keeps."""
    return [_kept(place, one, stored) for place, one in enumerate(stored.checkpoint.state.optimizers)]


def _kept(place: int, optimizer: Optimizer, stored: Stored) -> Kept:
    rows, certain = rows_of(optimizer, stored.classes[place])
    members: dict[str, int] = {}
    for group, one in enumerate(optimizer.groups):
        for member in one.members:
            if member is not None:
                members.setdefault(member, group)
    keys = {name: found for name, one in optimizer.state.items() if (found := base_keys(one))}
    return Kept(place, optimizer, rows, certain, members, keys)


@also(runs.optimizer_state_absent)
def optimizer_state_absent(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """The checkpoint has no optimizer, or one that was stepped and has no state."""
    if stored.purpose is not Purpose.RESUME:
        return
    checkpoint = stored.checkpoint
    found = optimizers_of(stored)
    if not found:
        yield from _no_optimizer(stored)
        return
    elsewhere = any(one.keys for one in found)
    for one in found:
        if one.keys or not one.members:
            continue
        if not one.rows:
            yield Unjudged(f"optimizer {one.place} is of a class that is not known and has no state: it may keep none")
        elif one.stateful and (weight := _stepped(stored, elsewhere)):
            severity, said = weight
            yield Evidence(
                f"optimizer {one.place} ({one.rows[0].name}) has no state for any of its "
                f"{count(one.stateful, 'parameter')}, {said}",
                Place(optimizer=one.place, path=str(checkpoint.raw.path), parameter=one.stateful[0]),
                {"parameters": kept(one.stateful), "missing": len(one.stateful)},
                "save optimizer.state_dict() after a step, whole; or resume from the checkpoint before",
                severity,
            )


def _no_optimizer(stored: Stored) -> Iterator[Evidence | Unjudged]:
    checkpoint, writer = stored.checkpoint, known(stored.checkpoint.convention, "CK201")
    if why := why_nothing_is_missed(stored):
        yield why
        return
    more = f": {writer.said}" if writer and writer.said and "schedule" in checkpoint.state.sections else ""
    yield Evidence(
        f"there is no optimizer state beside {count([*checkpoint.state.parameters], 'parameter')}{more}",
        Place(path=str(checkpoint.raw.path)),
        {"missing": len(checkpoint.state.parameters)},
        "save optimizer.state_dict() with the model; say --for release where only the weights are wanted",
    )


def _stepped(stored: Stored, elsewhere: bool) -> tuple[Severity, str] | None:
    """How much an empty state weighs and why, None before the first step."""
    state, words = stored.checkpoint.state, stored.checkpoint.recorded_step
    if state.step is not None and state.step <= 0:
        return None
    if elsewhere:  # a second optimizer may begin later
        return Severity.WARNING, "though another optimizer has its state"
    if state.step is not None:
        return Severity.ERROR, f"though the checkpoint is of {words or f'step {state.step}'}"
    epochs = [one.value for path, one in state.sections.get("schedule", {}).items() if path.endswith(_LAST_EPOCH)]
    if made := epochs_made(stored.checkpoint):
        return Severity.ERROR, f"though the training made {made}"
    stood = max((one for one in epochs if isinstance(one, int | float)), default=0)
    if stood > 0:
        return Severity.ERROR, f"though its schedule stands at last_epoch {stood}"
    return Severity.WARNING, "and nothing in the checkpoint says whether a step was made"


@also(runs.optimizer_state_missing_for_parameter)
def optimizer_state_missing_for_parameter(stored: Stored) -> Iterator[Evidence | Unjudged]:
    """A parameter in a param group has no state, while others of its optimizer have theirs."""
    if stored.purpose is not Purpose.RESUME:
        return
    parameters = stored.checkpoint.state.parameters
    frozen = {name for name, one in parameters.items() if one.requires_grad is False}
    if always := NEVER_TRAINED.get(stored.checkpoint.convention):
        frozen |= {name for name in parameters if always.search(name)}
    found = optimizers_of(stored)
    held = {name for one in found for name in one.keys if _index(name) < 0}  # every optimizer numbers from 0
    for one in found:
        missing = [name for name in one.without if name not in frozen and name not in held]
        if not one.keys or one.is_one_state or not missing:
            continue
        if _is_piece(one.optimizer):
            yield Unjudged(f"optimizer {one.place} is one rank's piece: the rest of its state lies with other ranks")
        elif len(missing) == 1 and stored.checkpoint.convention in LEAVES_FROZEN_OUT:
            yield _surely_lost(one, missing[0], stored.checkpoint.convention)
        elif missing[0] == numbered(_index(missing[0])):
            yield from _unnamed(one, missing)
        else:
            lost, idle = told_apart(missing, [*one.keys])
            yield from (_lost(one, each) for each in lost)
            yield from _idle(one, idle)


def _lost(one: Kept, lost: Lost) -> Evidence:
    keys = sorted(one.keys[lost.beside])
    return Evidence(
        f"{lost.name} has no optimizer state; {lost.beside}, which is trained with it, has {', '.join(keys)}",
        _at(one, lost.name),
        {"keys": kept(keys), "beside": lost.beside},
        _LOST_FIX,
    )


def _idle(one: Kept, units: Sequence[Idle]) -> Iterator[Evidence]:
    """One finding for the modules that nothing trained, one for lone parameters: never trained, or lost."""
    by_kind: dict[bool, list[Idle]] = defaultdict(list)
    for unit in units:
        by_kind[unit.is_lone].append(unit)
    for is_lone, alike in by_kind.items():
        missing = [name for unit in alike for name in unit.names]
        listed = names(unit.what for unit in alike)
        whole = "" if is_lone else f" ({count(missing, 'parameter')}, {names(missing)})"
        yield Evidence(
            f"{listed}{whole} in optimizer {one.place} {_have(alike)} no state: never trained, or lost",
            _at(one, missing[0]),
            {"parameters": kept(missing), "missing": len(missing)},
            "nothing where it is frozen or unused; if it was trained, its moments restart from zero",
            Severity.WARNING if is_lone else Severity.INFO,
        )


def _have(alike: Sequence[Idle]) -> str:
    return "has" if len(alike) == 1 else "have"


def _surely_lost(one: Kept, name: str, convention: str) -> Evidence:
    """The only one of an optimizer whose writer lists trainable parameters alone."""
    beside = next(iter(one.keys))
    return Evidence(
        f"{name} alone has no optimizer state, {beside} and the others have {', '.join(sorted(one.keys[beside]))}; "
        f"{convention} lists trainable parameters only",
        _at(one, name),
        {"keys": kept(sorted(one.keys[beside])), "beside": beside},
        _LOST_FIX,
    )


def _unnamed(one: Kept, missing: Sequence[str]) -> Iterator[Evidence]:
    """Indices without names: neighbours may be a frozen module, a lone one less likely is."""
    for run in runs_of([_index(name) for name in missing]):
        listed = [numbered(index) for index in run]
        yield Evidence(
            f"{names(listed)} in optimizer {one.place} {'has' if len(run) == 1 else 'have'} no state: never trained, "
            "or lost; without names nothing tells which",
            _at(one, listed[0]),
            {"parameters": kept(listed), "missing": len(listed)},
            "name the parameters by --target; if they were trained, their moments restart from zero",
            Severity.WARNING if len(run) == 1 else Severity.INFO,
        )


def _index(name: str) -> int:
    """The number in "#3", -1 for a name of another form."""
    return int(name[1:]) if name.startswith("#") and name[1:].isdecimal() else -1


def _is_piece(optimizer: Optimizer) -> bool:
    refs = (entry.ref for one in optimizer.state.values() for entry in one.values())
    return any(isinstance(ref, RawTensor) and ref.shard is not None for ref in refs)


@also(runs.optimizer_state_partial)
def optimizer_state_partial(stored: Stored) -> Iterator[Evidence]:
    """A parameter's state lacks a key that its optimizer keeps for every parameter."""
    if stored.purpose is not Purpose.RESUME:
        return
    for one in optimizers_of(stored):
        alike: dict[Likeness, Counter[frozenset[str]]] = defaultdict(Counter)
        likeness = {name: _likeness(one, name, stored) for name in one.keys}
        for name, keys in one.keys.items():
            alike[likeness[name]][keys] += 1
        lacking: dict[tuple[Likeness, frozenset[str]], list[str]] = {}
        for name, keys in one.keys.items():
            kind = likeness[name], keys
            if kind not in lacking:
                lacking[kind] = _lacking(one, keys, likeness[name].group, alike[likeness[name]])
            if lacking[kind] and (name in one.members or not one.members):
                yield _partial(one, name, keys, lacking[kind])


def _lacking(one: Kept, keys: frozenset[str], group: int | None, alike: Counter[frozenset[str]]) -> list[str]:
    hyperparameters = one.optimizer.groups[group].hyperparameters if group is not None else {}
    return missing_keys(keys, one.rows, hyperparameters, alike - Counter([keys]))


def _partial(one: Kept, name: str, keys: frozenset[str], lacking: Sequence[str]) -> Evidence:
    it = "it" if len(lacking) == 1 else "them"
    why = f"every {one.rows[0].name} keeps {it}" if one.rows else f"other parameters of its group have {it}"
    return Evidence(
        f"{name} has {', '.join(sorted(keys))} and lacks {', '.join(lacking)}: {why}",
        _at(one, name, lacking[0]),
        {"missing_keys": kept(lacking), "keys": kept(sorted(keys))},
        "save every key of the optimizer's state for this parameter",
        None if one.rows else Severity.WARNING,
    )


def _likeness(one: Kept, name: str, stored: Stored) -> Likeness:
    own = stored.checkpoint.state.parameters.get(name)
    specs = [own.entry.spec] if own is not None else [entry.spec for entry in one.optimizer.state[name].values()]
    return Likeness(one.members.get(name), max((len(spec.shape) for spec in specs if spec is not None), default=0))


def _at(one: Kept, name: str, key: str | None = None) -> Place:
    return Place(parameter=name, key=key, optimizer=one.place, group=one.members.get(name))

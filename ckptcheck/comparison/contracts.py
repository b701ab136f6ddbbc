"""Freeze contracts held against two checkpoints: what of a frozen parameter moved from one to the other."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from ckptcheck.comparison.checkpoint_diff import CheckpointDiff, DiffOptions, Kind, OptimizerPair, Row
from ckptcheck.comparison.pairs import Pair
from ckptcheck.comparison.selection import Selection
from ckptcheck.config import MOVES
from ckptcheck.state.checkpoint import NameSource
from ckptcheck.state.scalars import value_of
from ckptcheck.state.training_state import Entry, Optimizer
from ckptcheck.state.tree import ASIDES

COUNTER: Final = "step"
_NEAR: Final = 1e-3
"""How close, in parts, a move must come to that of weight decay alone, to be taken for it."""
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Broken:
    """One way in which a parameter broke its contract between two checkpoints.

    `what` is param, state, member, kept-state, buffer, dropped or gradient (an update read one). `row` is what
    differs, where something does; `left_count` and `right_count` are the parameter's update counters, None where it
    has none. `decay` is the factor of the value, where weight decay alone explains it.
    """

    what: str
    parameter: str
    contract: str
    pattern: str
    optimizer: int | None = None
    key: str = ""
    row: Row | None = None
    left_count: int | None = None
    right_count: int | None = None
    decay: float | None = None


@dataclass(frozen=True, slots=True)
class NotHeld:
    """What of the contracts could not be held against the two, and why: `what` as of a `Broken`."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """Contracts held against two checkpoints.

    Attributes:
        broken: each breach, in the left's order.
        not_held: what could not be told.
        contracts: the contract of each parameter and buffer that has one.
        unmatched: patterns that match nothing in either.
    """

    broken: tuple[Broken, ...] = ()
    not_held: tuple[NotHeld, ...] = ()
    contracts: Mapping[str, str] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()


def held_contracts(diff: CheckpointDiff, freeze: Mapping[str, str], options: DiffOptions) -> Held:
    """Hold contracts, by glob over parameter names, against a comparison; the last glob that matches binds.

    A buffer is bound by a glob that matches its name, and by that of all parameters of its module. A parameter that
    only one side freezes by requires_grad was thawed or frozen in between, and is not judged.
    """
    left, right = diff.left.state, diff.right.state
    names = dict.fromkeys((*left.parameters, *left.buffers, *right.parameters, *right.buffers))
    unmatched = tuple(pattern for pattern in freeze if not any(fnmatchcase(name, pattern) for name in names))
    return _Holding(diff, freeze, options).held(unmatched)


class _Holding:
    """Collects what is found."""

    def __init__(self, diff: CheckpointDiff, freeze: Mapping[str, str], options: DiffOptions) -> None:
        self._diff = diff
        self._freeze = freeze
        self._selection = Selection(options.only, options.ignored)
        self._model = {row.parameter: row for row in diff.rows if row.section == "model" and row.parameter is not None}
        self._rows = {(row.optimizer, row.parameter, row.key): row for row in diff.rows if row.section == "optimizer"}
        self._unheld: dict[tuple[str, str], list[str]] = {}

    def held(self, unmatched: tuple[str, ...]) -> Held:
        """Everything, parameters before buffers."""
        bound = {name: pattern for name in self._diff.left.state.parameters if (pattern := self._pattern(name))}
        broken = [breach for name, pattern in bound.items() for breach in self._of_parameter(name, pattern)]
        buffers = dict(self._bound_buffers(bound))
        broken += [breach for name, pattern in buffers.items() for breach in self._of_buffer(name, pattern)]
        said = tuple(NotHeld(what, f"{why}: {_some(names)}") for (what, why), names in self._unheld.items())
        contracts = {name: self._freeze[pattern] for name, pattern in {**bound, **buffers}.items()}
        return Held(tuple(broken), (*said, *self._nameless(bound)), contracts, unmatched)

    def _pattern(self, name: str) -> str | None:
        """The last glob that matches one of a parameter's names."""
        parameter = self._diff.left.state.parameters.get(name)
        names = (name, *parameter.aliases) if parameter is not None else (name,)
        matching = (one for one in reversed(list(self._freeze)) if any(fnmatchcase(name, one) for name in names))
        return next(matching, None)

    def _of_parameter(self, name: str, pattern: str) -> Iterator[Broken]:
        contract = self._freeze[pattern]
        left = self._diff.left.state.parameters[name]
        right = self._diff.right.state.parameters.get(name)
        trained = {one.requires_grad for one in (left, right) if one is not None} - {None}
        if len(trained) > 1:
            self._leave("param", "requires_grad changed in between, so that only a part of the way is bound", name)
            return
        if contract in MOVES:
            yield from self._moved(name, pattern)
        for one in self._diff.optimizers:
            yield from self._of_state(name, pattern, one)

    def _moved(self, name: str, pattern: str) -> Iterator[Broken]:
        if not self._selection.wants(Pair("model", name, None, None, None, "param")):
            self._leave("param", "--only or --ignore leaves the values out", name)
            return
        row = self._model.get(name)
        if row is None:
            return
        if row.kind in (Kind.REMOVED, Kind.RENAMED):
            self._leave("param", "the right checkpoint does not hold them under these names", name)
        elif row.kind is Kind.DTYPE and row.difference is None:
            self._leave("param", "their dtype changed, and --stat does not measure whether their values did", name)
        elif not _only_cast(row):
            optimizer, counts = self._counts(name)
            yield Broken("param", name, self._freeze[pattern], pattern, optimizer, row=row, left_count=counts[0],
                         right_count=counts[1], decay=self._decay(name, row, counts))  # fmt: skip

    def _of_state(self, name: str, pattern: str, one: OptimizerPair) -> Iterator[Broken]:
        """Breaches that are seen in one optimizer."""
        contract = self._freeze[pattern]
        sides = self._sides(one)
        states = [_kept(side.state.get(name, {})) if side is not None else {} for side in sides]
        counts = _number(states[0].get(COUNTER)), _number(states[1].get(COUNTER))

        def breach(what: str, key: str = "", row: Row | None = None) -> Broken:
            return Broken(what, name, contract, pattern, one.optimizer, key, row, *counts)

        if contract == "removed" and sides[1] is not None and sides[1].group_of(name) is not None:
            yield breach("member")
        if contract == "reset" and states[1]:
            yield breach("kept-state", next(iter(states[1])))
        if contract == "no-grad":
            yield from self._of_gradient(name, one, states, breach)
        if contract == "hold" and any(states):
            yield from self._of_held_state(name, one, states, breach)

    def _of_gradient(
        self, name: str, one: OptimizerPair, states: Sequence[Mapping[str, Entry]], breach: Callable[..., Broken]
    ) -> Iterator[Broken]:
        """That an update read a gradient: by its counter, else by a moment, which nothing else changes."""
        counts = _number(states[0].get(COUNTER)), _number(states[1].get(COUNTER))
        if counts[0] is not None and counts[1] is not None:
            if counts[1] > counts[0]:
                yield breach("gradient", COUNTER, self._rows.get((one.optimizer, name, COUNTER)))
            return
        held = any(side is not None and side.group_of(name) is not None for side in self._sides(one))
        if not held and not any(states):
            return
        rows = [self._rows.get((one.optimizer, name, key)) for key in states[0] if key in states[1]]
        moved = [row for row in rows if row is not None and row.kind is Kind.CHANGED]
        if moved:
            yield breach("gradient", moved[0].key or "", moved[0])
        elif not (states[0] and states[1]):
            why = "no update counter and no moment on both sides tells whether an update read a gradient"
            self._leave("gradient", why, name)

    def _of_held_state(
        self, name: str, one: OptimizerPair, states: Sequence[Mapping[str, Entry]], breach: Callable[..., Broken]
    ) -> Iterator[Broken]:
        if not states[1]:
            if one.right is not None:
                yield breach("dropped", next(iter(states[0])))
            return
        keys = list(dict.fromkeys((*states[0], *states[1])))
        left_out = [
            key for key in keys
            if not self._selection.wants(Pair("optimizer", name, key, None, None, "state", one.optimizer))
        ]  # fmt: skip
        if left_out:
            self._leave("state", "--only or --ignore leaves optimizer state out", name)
        rows = [row for key in keys if (row := self._rows.get((one.optimizer, name, key))) is not None]
        moved = sorted((row for row in rows if not _only_cast(row)), key=lambda row: row.key == COUNTER)
        if moved:  # a moment says how far, the counter only that updates were made
            yield breach("state", moved[0].key or "", moved[0])

    def _bound_buffers(self, bound: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Buffers under a contract of resting values, with the glob that says so."""
        modules: dict[str, list[str | None]] = {}
        for name in self._diff.left.state.parameters:
            modules.setdefault(_module(name), []).append(bound.get(name))
        for name in self._diff.left.state.buffers:
            of_module = modules.get(_module(name), [])
            pattern = self._pattern(name) or (of_module[0] if of_module and all(of_module) else None)
            if pattern is not None and self._freeze[pattern] in MOVES:
                yield name, pattern

    def _of_buffer(self, name: str, pattern: str) -> Iterator[Broken]:
        if not self._selection.wants(Pair("model", name, None, None, None, "buffer")):
            self._leave("buffer", "--only or --ignore leaves the buffers out", name)
            return
        row = self._model.get(name)
        if row is not None and row.kind not in (Kind.REMOVED, Kind.RENAMED) and not _only_cast(row):
            yield Broken("buffer", name, self._freeze[pattern], pattern, row=row)

    def _nameless(self, bound: Mapping[str, str]) -> Iterator[NotHeld]:
        """Optimizers whose state has no names, where a contract is about state or membership."""
        asked = {self._freeze[pattern] for pattern in bound.values()} - {"no-update"}
        about = ["state"] if asked else []
        about += ["gradient"] if "no-grad" in asked else []
        for side, checkpoint in (("left", self._diff.left), ("right", self._diff.right)):
            for place, naming in enumerate(checkpoint.namings):
                if naming.source is NameSource.NONE:
                    said = f"optimizer {place} of the {side} checkpoint has no names: its members are numbered"
                    yield from (NotHeld(what, said) for what in about)
        if not self._diff.right.state.optimizers:
            yield from (NotHeld(what, "the right checkpoint holds no optimizer") for what in about)

    def _sides(self, one: OptimizerPair) -> tuple[Optimizer | None, Optimizer | None]:
        left, right = self._diff.left.state.optimizers, self._diff.right.state.optimizers
        return (left[one.left] if one.left is not None else None, right[one.right] if one.right is not None else None)

    def _counts(self, name: str) -> tuple[int | None, tuple[int | None, int | None]]:
        """The optimizer that holds a parameter, and its update counters on both sides."""
        for one in self._diff.optimizers:
            sides = self._sides(one)
            if any(side is not None and (side.group_of(name) is not None or name in side.state) for side in sides):
                entries = [side.state.get(name, {}).get(COUNTER) if side is not None else None for side in sides]
                return one.optimizer, (_number(entries[0]), _number(entries[1]))
        return None, (None, None)

    def _decay(self, name: str, row: Row, counts: tuple[int | None, int | None]) -> float | None:
        """The factor (1 - lr * weight_decay) ** n, where a value moved by exactly that much; n by counter or step."""
        if row.difference is None or row.difference.rel_l2 is None or row.difference.sign_flips:
            return None
        steps = self._diff.left.state.step, self._diff.right.state.step
        moves = [after - before for before, after in (counts, steps) if before is not None and after is not None]
        for one in self._diff.optimizers:
            right = self._sides(one)[1]
            group = right.group_of(name) if right is not None else None
            if right is None or group is None:
                continue
            values = [right.groups[group].hyperparameters.get(key) for key in ("lr", "weight_decay")]
            rates = [entry.value for entry in values if entry is not None and isinstance(entry.value, float)]
            for count in moves if len(rates) == 2 else ():
                rest = 1 - rates[0] * rates[1]
                factor = rest**count if 0 < rest < 1 and count > 0 else 1.0
                if 0 < factor < 1 and abs(row.difference.rel_l2 - (1 - factor)) <= _NEAR * (1 - factor):
                    return float(factor)
        return None

    def _leave(self, what: str, why: str, name: str) -> None:
        self._unheld.setdefault((what, why), []).append(name)


def _only_cast(row: Row) -> bool:
    """Whether a tensor is the same but for the dtype that it is kept in."""
    if row.kind is not Kind.DTYPE or row.difference is None or row.right is None or row.right.spec is None:
        return False
    return row.difference.differing == 0 or row.difference.rounded_through == row.right.spec.dtype


def _number(entry: Entry | None) -> int | None:
    """A counter, read now; None for what is no whole number."""
    value = value_of(entry)
    return int(value) if isinstance(value, int | float) and float(value).is_integer() else None


def _kept(state: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """The entries of a parameter's state; a file may keep an empty dict in their place."""
    return {key: entry for key, entry in state.items() if key and not key.endswith(ASIDES)}


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more

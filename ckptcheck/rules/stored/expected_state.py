"""Which keys an optimizer's state must have for a parameter: by its class, or by what it keeps for the others."""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

from ckptcheck.optimizers.guessing import Guess, guess_from
from ckptcheck.optimizers.row import Kind, Row
from ckptcheck.optimizers.table import KEPT_BESIDE
from ckptcheck.state.training_state import Entry, Optimizer
from ckptcheck.state.tree import ASIDES

_QUANTISED: Final = "__bnb_optimizer_quant_state__."
_FACTORED: Final = (Kind.ROWS, Kind.COLUMNS)
MIN_ALIKE: Final = 2
"""Parameters of one group that must keep a key before another of it is missed by their example alone."""


def base_keys(kept: Mapping[str, Entry]) -> frozenset[str]:
    """The keys of one parameter's state as its class names them: parts of a quantised moment are the moment.

    Float32 weights that a trainer keeps beside them are no state of the optimizer's.
    """
    return _base_keys(tuple(kept))


@lru_cache(maxsize=256)  # of 20,000 parameters nearly all have the same keys
def _base_keys(keys: tuple[str, ...]) -> frozenset[str]:
    bare = (key.removeprefix(_QUANTISED).split(".")[0].split("[")[0] for key in keys if not key.endswith(ASIDES))
    return frozenset(bare) - KEPT_BESIDE - {""}


def rows_of(optimizer: Optimizer, guess: Guess) -> tuple[tuple[Row, ...], bool]:
    """The classes that an optimizer can be, and whether that is sure.

    Where its state fits none, keys may be missing: then those that its hyperparameters name and that have all its keys.
    """
    if guess.rows:
        return guess.rows, guess.certain
    values = {path: one.value for group in optimizer.groups for path, one in group.hyperparameters.items()}
    by_groups = guess_from(values, ())
    held = {key for kept in optimizer.state.values() for key in base_keys(kept)}
    if not held or not by_groups.certain:
        return (), False
    return tuple(row for row in by_groups.rows if held <= set(row.keys)), True


def required(rows: Iterable[Row], hyperparameters: Mapping[str, Entry]) -> frozenset[str]:
    """Keys that every one of these classes keeps for a stepped parameter of a group."""
    found = [_required(row, hyperparameters) for row in rows]
    return frozenset.intersection(*found) if found else frozenset()


def keeps_nothing(rows: Collection[Row], hyperparameters: Mapping[str, Entry]) -> bool:
    """Whether one of these classes keeps no state under a group's hyperparameters, as SGD without momentum."""
    return any(not _required(row, hyperparameters) for row in rows)


def _required(row: Row, hyperparameters: Mapping[str, Entry]) -> frozenset[str]:
    brought = {key for key, cause in row.when.items() if _is_on(hyperparameters.get(cause))}
    counted = {row.counter} if row.counter in hyperparameters else set()
    return (row.always | brought) - counted


def _is_on(entry: Entry | None) -> bool:
    """Whether a hyperparameter is true or other than 0; a tensor or None counts for neither."""
    return entry is not None and isinstance(entry.value, bool | int | float) and bool(entry.value)


def missing_keys(
    keys: Collection[str],
    rows: Collection[Row],
    hyperparameters: Mapping[str, Entry],
    alike: Mapping[frozenset[str], int],
) -> list[str]:
    """What a parameter's state lacks.

    `alike` counts the sets of keys that other parameters of its group have, those with as many dimensions.
    """
    wanted = set(required(rows, hyperparameters))
    if rows:
        wanted |= frozenset.intersection(*(_halves(row, keys) for row in rows))
    others = [own for own, count in alike.items() if count > 0]
    if sum(alike.values()) >= MIN_ALIKE and (not rows or all(_is_quantised(row) for row in rows)):
        wanted |= frozenset.intersection(*others)
    return sorted(wanted - set(keys))


def _halves(row: Row, keys: Collection[str]) -> frozenset[str]:
    """Of a factored second moment, what belongs together: rows and columns, where there is no whole one."""
    halves = frozenset(key for key, kind in row.keys.items() if kind in _FACTORED)
    whole = {key for key, kind in row.keys.items() if kind is Kind.PARAMETER and key not in row.when}
    return halves if halves and not whole & set(keys) else frozenset()


def _is_quantised(row: Row) -> bool:
    return any(kind is Kind.TABLE for kind in row.keys.values())

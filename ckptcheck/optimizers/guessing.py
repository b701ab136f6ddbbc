"""Which class an optimizer is, told by what its groups and its state hold. A state_dict does not name it."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ckptcheck.optimizers.row import Row
from ckptcheck.optimizers.table import KEPT_BESIDE, OPTIMIZERS, SHARED_HYPERPARAMETERS
from ckptcheck.state.training_state import Optimizer
from ckptcheck.state.tree import ASIDES

_PLACE = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Guess:
    """The classes that an optimizer can be, the likeliest first; none where no row of the table fits.

    `certain` is True where one class alone fits both the hyperparameters and the state.
    """

    rows: tuple[Row, ...]
    certain: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The classes by name."""
        return tuple(row.name for row in self.rows)


def guess(optimizer: Optimizer) -> Guess:
    """The class of an optimizer of a training state."""
    values = {
        path: one.value if one.ref is None else None
        for group in optimizer.groups
        for path, one in group.hyperparameters.items()
    }
    state = {key for kept in optimizer.state.values() for key in kept}
    return guess_from(values, state)


def keeps_one_state(optimizer: Optimizer) -> bool:
    """Whether its class keeps one state for all parameters, under the first (LBFGS)."""
    rows = guess(optimizer).rows
    return bool(rows) and all(row.whole_list for row in rows)


def guess_from(hyperparameters: Mapping[str, object], state_keys: Collection[str]) -> Guess:
    """The class, from the paths and values of the groups' hyperparameters and the paths of the state's keys."""
    state_keys = [key for key in state_keys if not key.endswith(ASIDES)]
    own = {without_places(path) for path in hyperparameters if not path.endswith(ASIDES)} - SHARED_HYPERPARAMETERS
    given = {**hyperparameters, **{without_places(path): value for path, value in hyperparameters.items()}}
    keys = {without_places(key).split("[")[0] for key in state_keys} - {""} - KEPT_BESIDE
    fitting = [row for row in OPTIMIZERS if _fits(row, given, keys)]
    if not fitting:
        return Guess((), certain=False)
    strange = {row.name: len(own - row.hyperparameters - row.perhaps - set(row.flags)) for row in fitting}
    least = min(strange.values())
    best = tuple(row for row in fitting if strange[row.name] == least)
    sure = len(best) == 1 and least == 0 and bool(own or keys)
    return Guess(best, certain=sure)


def without_places(path: str) -> str:
    """A path without positions in a list: "betas" for "betas[0]"."""
    return _PLACE.sub("", path)


def _fits(row: Row, given: Mapping[str, object], keys: set[str]) -> bool:
    if not row.hyperparameters <= set(given) or row.lacks & set(given):
        return False
    if any(given.get(flag, value) != value for flag, value in row.flags.items()):
        return False
    if row.marks and not row.marks & keys:
        return False
    return not keys or (keys <= set(row.keys) and row.always <= keys)

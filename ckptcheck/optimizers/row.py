"""What one optimizer class keeps for a parameter, as a row of the table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What a state key holds."""

    PARAMETER = "parameter"
    """A tensor of the parameter's shape."""
    COUNTER = "counter"
    """Counts the steps of this parameter: a 0-d tensor or a number."""
    SCALAR = "scalar"
    """One number for the parameter, as a 0-d tensor or a plain number."""
    ROWS = "rows"
    """Second moment over rows: (..., n) or (..., n, 1) of a parameter (..., n, m)."""
    COLUMNS = "columns"
    """Second moment over columns: (..., m) or (..., 1, m) of a parameter (..., n, m)."""
    STACKED = "stacked"
    """Tensors of the parameter's shape behind one more leading dimension."""
    FLAT = "flat"
    """One tensor over all parameters of the group, flattened."""
    LIST = "list"
    """A list of tensors or numbers."""
    TABLE = "table"
    """Quantisation: a map of values or block scales, whose shape follows from the element count alone."""


@dataclass(frozen=True, slots=True)
class Row:
    """One optimizer class.

    Attributes:
        name: the class's own name, with its package where that is not torch.
        keys: every state key that it can keep, with its kind; nested keys are joined by dots.
        always: keys that a stepped parameter has under any hyperparameters.
        hyperparameters: keys of a group that are this class's, beside those that all share; "betas[2]" where the place
            tells it.
        flags: hyperparameters that have one value in this class; a file may lack them.
        perhaps: further hyperparameters of it, which files of older versions lack.
        lacks: hyperparameters that it never has.
        marks: state keys of which it has one at least, where another class has all the rest too.
        when: optional state key to the hyperparameter that brings it (true, or other than 0).
        group_counter: key of the group that counts steps, where the state has no counter.
        whole_list: whether the state stands under the first parameter for all of them (LBFGS).
    """

    name: str
    keys: Mapping[str, Kind]
    always: frozenset[str]
    hyperparameters: frozenset[str]
    flags: Mapping[str, object] = field(default_factory=dict)
    when: Mapping[str, str] = field(default_factory=dict)
    perhaps: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    group_counter: str = ""
    whole_list: bool = False

    @property
    def counter(self) -> str | None:
        """The state key that counts steps, or None."""
        return next((key for key, kind in self.keys.items() if kind is Kind.COUNTER), None)


def shape_fits(kind: Kind, shape: Sequence[int], parameter: Sequence[int]) -> bool | None:
    """Whether a state tensor of `shape` fits a parameter's shape; None where the kind says nothing about it."""
    own, whole = tuple(shape), tuple(parameter)
    if kind is Kind.PARAMETER:
        return own == whole
    if kind is Kind.STACKED:
        return own[1:] == whole
    if kind is Kind.ROWS:
        return len(whole) > 1 and own in (whole[:-1], (*whole[:-1], 1))
    if kind is Kind.COLUMNS:
        return len(whole) > 1 and own in ((*whole[:-2], whole[-1]), (*whole[:-2], 1, whole[-1]))
    if kind in (Kind.COUNTER, Kind.SCALAR):
        return math.prod(own) == 1
    return None

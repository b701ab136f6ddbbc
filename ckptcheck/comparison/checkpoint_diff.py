"""What a comparison of two checkpoints found: one row a differing tensor or value, one summary a section."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.finding import Compared
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.training_state import Entry

CONTENT_SECTIONS: Final = (
    "model",
    "optimizer",
    "scheduler",
    "scaler",
    "ema",
    "rng",
    "data",
    "progress",
    "other",
)
"""The parts of a checkpoint as users name them, in the order of reports."""


_SECTION_OF_STATE: Final = {"schedule": "scheduler"}
"""Sections of a training state that users call by another name; "extra" is progress or other."""
_PROGRESS: Final = frozenset(
    {"epoch", "epochs", "step", "steps", "iter", "iteration", "iterations", "iter_num", "global_step", "num_updates"}
)
"""Last keys of a path that counts how far the training went."""


def section_of(section: str, path: str) -> str:
    """The content section of a path in a section of a training state."""
    told = _SECTION_OF_STATE.get(section, section)
    if told in CONTENT_SECTIONS:
        return told
    return "progress" if path.rpartition(".")[2] in _PROGRESS else "other"


class Kind(StrEnum):
    """How a tensor or value differs."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    """The left side's content lies at another place on the right, which the left side has too."""
    RENAMED = "renamed"
    """Only its name changed."""
    DTYPE = "dtype"
    SHAPE = "shape"


GROUP_KEY: Final = "group"
ORDER_KEY: Final = "param_groups"


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor or plain value that differs.

    `parameter` is a parameter's or buffer's name; None for values that belong to none. `key` is a state key, a
    hyperparameter, a generator or a path in the section. `difference` is None for plain values, for one side only and
    for two shapes. `other` is the right side's name (kind moved and renamed) or group. `beyond` counts elements
    beyond the tolerance, None where none was asked for. `group` is the left side's, else the right side's.

    Kind moved without tensors: with `GROUP_KEY` a parameter's group, both sides' numbers being the values, None where
    it is in none; with `ORDER_KEY` the order of an optimizer's groups and their members, in words.
    """

    section: str
    parameter: str | None
    key: str | None
    kind: Kind
    left: Entry | None
    right: Entry | None
    optimizer: int | None = None
    group: int | None = None
    difference: TensorDifference | None = None
    other: str = ""
    beyond: int | None = None


@dataclass(frozen=True, slots=True)
class SectionSummary:
    """How one section compares: how many tensors and values both sides have, and how many of them differ.

    `nbytes` counts the tensors' bytes that were compared, one side. `tolerated` counts tensors and values that
    differ within the tolerance, or are equal only after the cast; they have no row.
    """

    section: str
    tensors: int = 0
    values: int = 0
    nbytes: int = 0
    differing: int = 0
    added: int = 0
    removed: int = 0
    tolerated: int = 0


@dataclass(frozen=True, slots=True)
class Regrouped:
    """A parameter that is in another param group on the right; None where it is in none, or the side lacks it."""

    parameter: str
    optimizer: int
    left_group: int | None
    right_group: int | None


@dataclass(frozen=True, slots=True)
class OptimizerPair:
    """An optimizer that a side has: `optimizer` is its number in rows, the left's place where the left has it.

    `left` and `right` are its places and `left_label` and `right_label` what the files call it ("" for nothing);
    None on a side that lacks it. `paired_by` is "name", "position" or "none" (see `CheckpointDiff`), "" on one side.
    """

    optimizer: int
    left: int | None
    right: int | None
    left_label: str = ""
    right_label: str = ""
    paired_by: str = ""

    @property
    def label(self) -> str:
        """What it is called in reports, the left's word first; "" where no file calls it anything."""
        return self.left_label or self.right_label


@dataclass(frozen=True, slots=True)
class CheckpointDiff:
    """Everything that differs between two checkpoints.

    Attributes:
        left, right: the checkpoints.
        rows: ordered by section, then as in the left checkpoint.
        summaries: one for each section that a side has.
        regrouped: parameters whose group changed, groups being matched by their members; each has a row as well.
        optimizers: each that a side has.
        paired_by: for each optimizer that both have: "name", "position" where a side has no names or none that are
            certain, or "none" where the counts differ besides.
        compared: how much was compared.
        not_compared: what was left out, one sentence each.
        notes: what was taken as equal or stripped, one sentence each.
        cast: the dtype of `--cast`, "" without; `cast_equal` counts tensors that are equal only after it.
        unread: tensors that both sides have, and whose contents could not be held against each other.
        whole: whether all was compared: no pattern and no chosen section left something out, so that what has no row
            is equal.
    """

    left: Checkpoint
    right: Checkpoint
    rows: tuple[Row, ...]
    summaries: tuple[SectionSummary, ...]
    regrouped: tuple[Regrouped, ...] = ()
    optimizers: tuple[OptimizerPair, ...] = ()
    paired_by: tuple[str, ...] = ()
    compared: Compared = field(default_factory=Compared)
    not_compared: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cast: str = ""
    cast_equal: int = 0
    unread: int = 0
    whole: bool = True

    @property
    def same_content(self) -> bool:
        """Whether nothing differs that was compared (`summaries` tell how much was); containers are not content."""
        return not self.rows and not self.regrouped


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """What to compare and how.

    `only` and `ignored` are globs over "section/parameter/key" or one of the three (see `selection.Selection`);
    `renames` are (pattern, replacement) of regular expressions for the left side's names, of which the first match in
    a name is replaced; `left_section` and
    `right_section` choose one section or further model of a side; `cast` names the dtype that both sides are cast to
    before they are held unequal; `tolerances` map "role" or "role:dtype" to (rtol, atol), the most specific wins. A
    role is "param", "buffer" (else as "param"), "grad", "state", "hyper" or a content section but "rng"; the dtype is
    the left's. `rtol` and `atol` are for what no role asks for: see `outcomes.tolerance_of`.
    """

    only: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    left_section: str = ""
    right_section: str = ""
    cast: str = ""
    rtol: float = 0.0
    atol: float = 0.0
    tolerances: dict[str, tuple[float, float]] = field(default_factory=dict)
    statistics: bool = True
    """False counts and names what differs without measuring how far (--stat)."""

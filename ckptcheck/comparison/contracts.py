"""Freeze contracts held against two checkpoints: what of a frozen parameter moved from one to the other."""

from dataclasses import dataclass

from ckptcheck.comparison.checkpoint_diff import Row


@dataclass(frozen=True, slots=True)
class Broken:
    """One way in which a parameter broke its contract between two checkpoints.

    `what` is param, state, member, kept-state, buffer or dropped. `row` is what differs, where something does;
    `left_count` and `right_count` are the parameter's update counters, None where it has none.
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

"""What a run that is made once more shall lay out on disk."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ckptcheck.trace.items import Item


@dataclass(frozen=True, slots=True)
class Wanted:
    """Items by (step, moment), steps as the run itself counts them."""

    items: Mapping[tuple[int, str], frozenset[Item]]

    @property
    def last_step(self) -> int:
        """The last step that the run has to make."""
        return max((step for step, _ in self.items), default=0) or 1

    def to_json(self) -> str:
        """As a recorder reads it."""
        return json.dumps([
            {"step": step, "moment": moment, "items": sorted(map(list, items))}
            for (step, moment), items in self.items.items()
        ])  # fmt: skip


def end_of(one: Wanted | int) -> tuple[int, Wanted | None]:
    """After which step a run is ended, and what it lays out: for what is wanted of it, or a step to end after."""
    return (one, None) if isinstance(one, int) else (one.last_step, one)

"""What the uninterrupted run and the resumed one both saved after the step that was resumed after."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ckptcheck.experiment.commands.checkpoints import checkpoints_in
from ckptcheck.trace.script.rendezvous import listing

FILES: Final = 4
"""Checkpoints of one step that are compared: often weights, an average, the best so far."""


@dataclass(frozen=True, slots=True)
class SavedTwice:
    """A checkpoint that both runs wrote after the same step: its path below either output folder, and the step."""

    path: str
    step: int


def saved_twice(
    left: Path, left_changes: Mapping[str, int], right: Path, right_changes: Mapping[str, int], after: int
) -> list[SavedTwice]:
    """What was written by both runs after the same step: after the last such step, and after the first.

    `left_changes` are the steps after which each path of the whole run changed last, `right_changes` those of the
    resumed run as it counts; it goes on `after` a step. What only one of them wrote later is left out: names with a
    time in them, what is written once at the start.
    """
    steps: dict[int, list[str]] = {}
    for path, step in left_changes.items():
        if step > after and right_changes.get(path, -1) + after == step:
            steps.setdefault(step, []).append(path)
    present = listing(left)

    def nearest(order: list[int]) -> list[SavedTwice]:
        each = (_checkpoints(left, right, one, steps[one], present.keys() - set(steps[one])) for one in order)
        return next((found for found in each if found), [])

    last = nearest(sorted(steps, reverse=True))
    first = nearest(sorted(one for one in steps if last and one < last[0].step))
    return [*last, *first]


def _checkpoints(left: Path, right: Path, step: int, paths: list[str], others: set[str]) -> list[SavedTwice]:
    found = [place.relative_to(left) for place in checkpoints_in(left, paths, others)]
    return [SavedTwice(str(path), step) for path in found if (right / path).exists()][:FILES]

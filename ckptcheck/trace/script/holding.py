"""What is held of a script between its hooks: the window in progress, and an update of which nobody knows the end."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import torch

from ckptcheck.trace.items import Item
from ckptcheck.trace.outermost import STEP_CODES
from ckptcheck.trace.script.background import Samples
from ckptcheck.trace.script.windows import Mark

MAX_PARTS: Final = 64
"""Forward passes and losses counted apart in one step; further ones are recorded as the last."""
_COUNTED: Final = frozenset({"inputs", "loss"})


@dataclass(slots=True)
class Window:
    """Samples from the first forward pass after an update to the next update, and of what that update did.

    `kept` holds copies of what a second pass wants to see of it, until it is known which step it belongs to.
    """

    samples: Samples = field(default_factory=dict)
    kept: dict[Item, torch.Tensor] = field(default_factory=dict)
    forwards: int = 0
    _counts: dict[str, int] = field(default_factory=dict)

    def part(self, what: str) -> int:
        """How many of this there were before in this window, at most MAX_PARTS - 1."""
        count = self._counts.get(what, 0)
        self._counts[what] = count + 1
        return min(count, MAX_PARTS - 1)

    def drop(self, items: Iterable[Item]) -> None:
        """Forget samples of an update that was none."""
        for item in items:
            self.samples.pop(item, None)


def joined(step: Window, window: Window) -> Window:
    """A step with one more window: what is counted in a step goes on counting, generators stay those of its begin.

    Both must have been measured.
    """
    counted: dict[tuple[str, str], int] = {}
    for item in step.samples:
        if item.kind in _COUNTED:
            counted[item.kind, item.name] = max(counted.get((item.kind, item.name), 0), item.part + 1)

    def place(item: Item) -> Item:
        if item.kind not in _COUNTED:
            return item
        return item._replace(part=min(item.part + counted.get((item.kind, item.name), 0), MAX_PARTS - 1))

    begin = {item: sample for item, sample in step.samples.items() if item.kind == "rng"}
    later = {place(item): sample for item, sample in window.samples.items()}
    kept = {**step.kept, **{place(item): tensor for item, tensor in window.kept.items()}}
    return Window({**step.samples, **later, **begin}, kept, step.forwards + window.forwards)


@dataclass(frozen=True, slots=True)
class Pending:
    """An update that has begun, and what to go back to where it turns out to be none: it raises, or is skipped.

    `window`, `ended` and `resting` are as they were before it. `place` is that of the optimizer; `items` are its
    hyperparameters.
    """

    optimizer: Any
    mark: Mark
    window: Window
    ended: Window | None
    resting: bool
    thread: int
    place: int
    items: tuple[Item, ...] = ()


def is_stepping(optimizer: Any) -> bool:
    """Whether a `step` of the optimizer is in progress in this thread, read off the call stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in STEP_CODES and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False

"""What a trace of a script does not say, though the other one does: silence there is no difference."""

from fnmatch import fnmatchcase
from typing import Final

from ckptcheck.trace.items import Item
from ckptcheck.trace.moved import moved_items
from ckptcheck.trace.reading import Trace

LATE: Final = frozenset({"updates", "buffer", "scaler", "state", "param", "schedule", "ema", "data", "extra"})
"""Kinds that a script's step samples when the next one begins; after the last one, their objects may be gone."""
NAMED: Final = frozenset({"param", "grad", "state", "buffer"})
"""Kinds of which only some names may have been asked for."""


class Unsaid:
    """Knows what one trace leaves out."""

    def __init__(self, trace: Trace) -> None:
        header = trace.header
        script = header.get("driver") == "script"
        self._last = max(trace.steps, default=0) if script else None
        self._only = [str(one) for one in header.get("only") or ()]
        self._without_grads = header.get("grads") is False
        self._moved = moved_items(trace)
        self._known = frozenset(item for item, _ in trace.tensors()) if script else frozenset()

    @property
    def everywhere(self) -> bool:
        """Whether something may be left out of every step."""
        return bool(self._only or self._moved) or self._without_grads

    def is_last(self, step: int) -> bool:
        """Whether a script has ended after this step."""
        return step == self._last

    def leaves_out(self, item: Item, step: int) -> bool:
        """Whether an item that the trace lacks at a step may be there nevertheless."""
        if (item.kind == "grad" and self._without_grads) or item in self._moved:
            return True
        if item.kind in NAMED and self._only and not any(fnmatchcase(item.name, one) for one in self._only):
            return True
        return step == self._last and item.kind in LATE and item in self._known

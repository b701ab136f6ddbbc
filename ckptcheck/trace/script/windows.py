"""Where one step of a script ends and the next begins, told from which optimizers update which parameters.

A window runs from the first forward pass with gradients after an update to the next update. Windows without an update,
micro-batches or an update that a scaler skipped, join the next one. Optimizers that take turns, a discriminator and a
generator, update in windows of their own and yet make one step together: a step ends where an optimizer is about to
update for a second time, or is about to update what another one has already updated in this step, or where whoever
watches says so: an optimizer that was made after the last update belongs to a second training.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to go back to: the step in progress, who has updated in it, and what."""

    step: int
    updated: frozenset[int]
    touched: frozenset[int]


class Windows:
    """Counts steps. `step` is the number of the step in progress, 0 before the first update.

    Optimizers and parameters are told by identity.
    """

    def __init__(self) -> None:
        self.step = 0
        self._updated: frozenset[int] = frozenset()
        self._touched: frozenset[int] = frozenset()
        self._before: frozenset[int] = frozenset()
        self._written = False

    def opens(self, optimizer: int, parameters: frozenset[int]) -> bool:
        """Whether an update that is about to happen begins a new step. Counts nothing."""
        began = self.step == 0 or self._written
        return began or optimizer in self._updated or not self._touched.isdisjoint(parameters)

    def close(self) -> None:
        """The step in progress is over: whoever updates next begins a new one."""
        self._written = True

    def count(self, optimizer: int, parameters: frozenset[int]) -> bool:
        """Count an update that is about to happen; returns whether it begins a new step."""
        opened = self.opens(optimizer, parameters)
        if opened:
            self.step += 1
            self._before = self._updated
            self._updated = self._touched = frozenset()
            self._written = False
        self._updated |= {optimizer}
        self._touched |= parameters
        return opened

    def mark(self) -> Mark:
        """The place before an update that may turn out to be none."""
        return Mark(self.step, self._updated, self._touched)

    def back(self, mark: Mark) -> None:
        """Take an update back that turned out to be none. A step that was over by then stays so."""
        self._written = self._written or mark.step != self.step
        self.step, self._updated, self._touched = mark.step, mark.updated, mark.touched

    @property
    def looks_complete(self) -> bool:
        """Whether every optimizer of the step before has updated in this one; nobody knows in the first step."""
        return bool(self._before) and self._before <= self._updated

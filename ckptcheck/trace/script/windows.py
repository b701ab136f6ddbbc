"""Where one step of a script ends and the next begins, told from which optimizers update which parameters.

A window runs from the first forward pass with gradients after an update to the next update. Windows without an update,
micro-batches or an update that a scaler skipped, join the next one. Optimizers that take turns, a discriminator and a
generator, update in windows of their own and yet make one step together: a step ends where an optimizer is about to
update for a second time, or is about to update what another one has already updated in this step.
"""

from collections.abc import Iterable


class Windows:
    """Counts steps. `step` is the number of the step in progress, 0 before the first update."""

    def __init__(self) -> None:
        self.step = 0
        self._updated: set[int] = set()
        self._touched: set[int] = set()

    def opens(self, optimizer: int, parameters: Iterable[int]) -> bool:
        """Whether an update that is about to happen begins a new step; it is then counted.

        `optimizer` and `parameters` are identities. Call it once for each update that may happen.
        """
        held = set(parameters)
        again = self.step == 0 or optimizer in self._updated or bool(held & self._touched)
        if again:
            self.step += 1
            self._updated.clear()
            self._touched.clear()
        self._updated.add(optimizer)
        self._touched |= held
        return again

    def skipped(self, optimizer: int, parameters: Iterable[int], opened: bool) -> None:
        """Take an update back that turned out to be none: a fused optimizer that a scaler told to do nothing."""
        if opened:
            self.step -= 1
            self._updated.clear()
            self._touched.clear()
        self._updated.discard(optimizer)
        self._touched -= set(parameters)

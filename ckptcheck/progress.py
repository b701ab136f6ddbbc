"""How a long call tells what it is doing, to whoever cares to show it."""

from typing import Protocol


class Progress(Protocol):
    """Told of every phase and step of every run; may be called from several threads."""

    def update(self, run: str, phase: str, step: int | None, steps: int | None) -> None:
        """Run `run` is in phase `phase`, at `step` of `steps`; None where the phase has no steps."""

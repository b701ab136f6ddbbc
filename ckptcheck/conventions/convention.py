"""What a convention is: it tells who wrote a checkpoint, and what its parts mean."""

from collections.abc import Sequence
from typing import Protocol

from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTree


class Convention(Protocol):
    """One writer of checkpoints."""

    @property
    def name(self) -> str:
        """The writer, as reports call it."""
        ...

    def claims(self, raw: RawTree) -> bool:
        """Whether this writer wrote it, told by the names and keys in it; must not raise for any raw tree."""
        ...

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """The training state. `names` are the user's for the optimizers' indices, in the groups' order.

        Raises UsageError where `names` are too many or too few, DamagedCheckpointError where parts do not fit.
        """
        ...

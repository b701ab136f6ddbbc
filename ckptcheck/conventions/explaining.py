"""From a raw tree to a checkpoint understood."""

from collections.abc import Sequence
from dataclasses import replace

from ckptcheck.conventions.piece_notes import piece_notes
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTree


def explain(raw: RawTree, names: Sequence[str] | None = None) -> Checkpoint:
    """Who wrote it, and its training state by parameter name.

    `names` name the optimizers' indices in the groups' order, for a file whose own cannot be known; names that the
    file itself has go first. Raises UsageError where `names` are too many or too few, DamagedCheckpointError where
    the parts do not fit each other.
    """
    from ckptcheck.conventions.table import CONVENTIONS

    convention = next(one for one in CONVENTIONS if one.claims(raw))
    found = convention.explain(raw, names)
    return replace(found, notes=(*found.notes, *piece_notes(found)))

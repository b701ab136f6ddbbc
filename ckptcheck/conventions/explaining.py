"""From a raw tree to a checkpoint understood."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ckptcheck.conventions.files import files_of, stem
from ckptcheck.conventions.piece_notes import defect_notes, piece_notes
from ckptcheck.conventions.target_names import named_by_target
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import RawTree
from ckptcheck.state.training_state import TrainingState

_DESCRIPTION: Final = re.compile(r"(.*/)?([a-z_]+_)?config\.json")
"""Files that say how a model is built or used, and hold nothing of its training."""


def explain(raw: RawTree, names: Sequence[str] | None = None, live: TrainingState | None = None) -> Checkpoint:
    """Who wrote it, and its training state by parameter name.

    `names` name the optimizers' indices in the groups' order, for a file whose own cannot be known; names that the
    file itself has go first. `live` is the training that shall load it: its parameters in the model's order and its
    optimizers' groups name what neither the file nor `names` do. Raises UsageError where `names` are too many or too
    few, DamagedCheckpointError where the parts do not fit each other.
    """
    from ckptcheck.conventions.table import CONVENTIONS

    convention = next(one for one in CONVENTIONS if one.claims(raw))
    found = convention.explain(raw, names)
    if live is not None:
        found = named_by_target(found, live)
    descriptions = tuple(stem(path) for path in files_of(raw) if _DESCRIPTION.fullmatch(path))
    return replace(
        found,
        descriptions=(*found.descriptions, *descriptions),
        unrecognised=tuple(path for path in found.unrecognised if path not in descriptions),
        notes=(*found.notes, *piece_notes(found), *defect_notes(raw)),
    )

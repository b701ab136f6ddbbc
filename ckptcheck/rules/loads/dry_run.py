"""What is judged: a checkpoint held against the training that shall load it, before and after the load."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ckptcheck.comparison.states import StateDiff
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.training_state import TrainingState


@dataclass(frozen=True, slots=True)
class DryRun:
    """A load that was tried in a process of its own, where nobody trains on.

    Attributes:
        checkpoint: the file; where it numbers its optimizers' parameters, they have the names of the live ones.
        built: the live objects as the target built them, before anything is loaded.
        loaded: the live objects straight after the load; None where none was made, or it raised.
        load: the file (left) against the live objects after the load (right); None likewise. What the file lacks is
            not on either side.
        how: what loaded: "the target's own load", "ckptcheck's store", "torch's load_state_dict"; "" without a load.
        raised: what the load raised, in one line; None where it came to its end.
        not_loaded: why no load was made, in one sentence; "" where one was.
    """

    checkpoint: Checkpoint
    built: TrainingState
    loaded: TrainingState | None = None
    load: StateDiff | None = None
    how: str = ""
    raised: str | None = None
    not_loaded: str = ""


WHY_NOT: Final[Mapping[str, str]] = {"loaded": "no load was made", "load": "no load was made"}

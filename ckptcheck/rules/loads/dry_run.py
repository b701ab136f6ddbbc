"""What is judged: a checkpoint held against the training that shall load it, before and after the load."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ckptcheck.comparison.states import EntryDifference, StateDiff
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.training_state import Optimizer, TrainingState

OWN_LOAD: Final = "the target's own load"
"""What loaded, as `DryRun.how` says it, where the target brings a load."""
Slot: TypeAlias = tuple[str, int | None, str, str]
"""Where an entry stands: section, optimizer, name, key."""


def slot_of(one: EntryDifference) -> Slot:
    """Where a differing entry stands."""
    return one.section, one.optimizer, one.name, one.key


@dataclass(frozen=True, slots=True)
class Paired:
    """An optimizer of the target, and the one of the file that a load puts into it.

    Attributes:
        place: the live optimizer's place in the run.
        live: as it is built; its members are live names.
        file: with live names where the file has none of its own; None where the file has no optimizer for this one.
        named: whether the file itself names its parameters, so that names can contradict the target's.
        exact_groups: whether the file's groups are those that the optimizer had; a flat file keeps none.
        by_position: whether a load binds by position, as torch does for an index-keyed optimizer.
        numbered: whether neither the file nor its model tells which parameter is which.
        suggested: for each live name that the file's state got by its place, the one that the file's own order
            suggests; empty where nothing does.
        guesses: the classes that the file's optimizer can be, none where no one knows.
        file_place: the place of the file's optimizer in the file, None where it has none for this one.
    """

    place: int
    live: Optimizer
    file: Optimizer | None
    named: bool = False
    exact_groups: bool = True
    by_position: bool = True
    numbered: bool = False
    suggested: Mapping[str, str] = field(default_factory=dict)
    guesses: tuple[str, ...] = ()
    file_place: int | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """A load that was tried in a process of its own, where nobody trains on.

    Attributes:
        checkpoint: the file; where it numbers its optimizers' parameters, they have the names of the live ones.
        built: the live objects as the target built them, before anything is loaded.
        loaded: the live objects straight after the load; None where none was made, or it raised.
        load: the file (left) against the live objects after the load (right); None likewise. What the file lacks is
            not on either side, and each live optimizer stands beside the one of the file that is its own.
        how: what loaded: "the target's own load", "ckptcheck's store", "torch's load_state_dict"; "" without a load.
        raised: what the load raised, in one line; None where it came to its end. torch's own is asked part by part:
            then `loaded` shows what came of the others.
        not_loaded: why no load was made, in one sentence; "" where one was.
        pairs: one for each live optimizer.
        held: live parameters and buffers whose content after the load lies somewhere in the file, under whatever name.
        rounded: entries whose live content is the file's, rounded to a narrower dtype and back: to which.
        for_release: whether the file is judged for a release, so that no training has to go on from it.
        left_out: what the load did not try, one line each.
    """

    checkpoint: Checkpoint
    built: TrainingState
    loaded: TrainingState | None = None
    load: StateDiff | None = None
    how: str = ""
    raised: str | None = None
    not_loaded: str = ""
    pairs: tuple[Paired, ...] = ()
    held: frozenset[str] = frozenset()
    rounded: Mapping[Slot, str] = field(default_factory=dict)
    for_release: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def loaded_optimizers(self) -> tuple[Optimizer, ...] | None:
        """The live optimizers after the load; None without one, or where it could not try the optimizers."""
        tried = not any(one.startswith("optimizer") for one in self.left_out)
        return self.loaded.optimizers if self.loaded is not None and tried else None

    @property
    def weights_were_tried(self) -> bool:
        """Whether a load was made that could take the model's weights."""
        return self.loaded is not None and not any(one.startswith("model") for one in self.left_out)

    @property
    def now(self) -> TrainingState:
        """The live objects as far as they got: after the load, else as built."""
        return self.loaded if self.loaded is not None else self.built


WHY_NOT: Final[Mapping[str, str]] = {"loaded": "no load was made", "load": "no load was made"}

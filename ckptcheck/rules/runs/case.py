"""What is judged: a resumed run against the run it should reproduce, with everything that was measured of both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ckptcheck.comparison.bindings import Binding
from ckptcheck.comparison.curve import Curve
from ckptcheck.comparison.freezing import Breach
from ckptcheck.comparison.non_finite import NonFinite
from ckptcheck.comparison.origins import Origins
from ckptcheck.comparison.states import EntryDifference, StateDiff
from ckptcheck.comparison.tensor_difference import TensorDifference
from ckptcheck.comparison.traces import Difference, TraceDiff
from ckptcheck.experiment.floor import Floor
from ckptcheck.finding import Json
from ckptcheck.rules.runs.course import Course, Interruption
from ckptcheck.state.stages import STAGE_ORDER
from ckptcheck.state.training_state import TrainingState
from ckptcheck.trace.items import Item

Measured: TypeAlias = Mapping[tuple[int, Item], TensorDifference]
"""Exact differences by (step, item); the load is at step k under items of kind param, state, buffer, ..."""


LASTING: Final = frozenset({"param", "buffer", "state", "scaler", "ema"})
"""Sections of a state that the steps after a load build upon."""


@dataclass(frozen=True, slots=True)
class Saving:
    """What saving did to the run that saved: the same run without saving is the left side.

    `step` is the step after which it saved; `touched` are items that changed from before to after the save;
    `later` the first difference to the run that did not save, where one was made.
    """

    step: int
    touched: tuple[Difference, ...]
    later: Difference | None


@dataclass(frozen=True, slots=True)
class Case:
    """Everything that the rules may look at. A field is None where it was not measured.

    `step` is k. `load` compares what was saved (left) with what is live right after the load (right), `bound` says
    how each optimizer's state is bound, `built` is the resumed run before its load. `trajectory` compares the steps
    that follow, without the noise floor; it has no difference where the resumed run goes on exactly. `raised` is
    what the resumed run raised, with its place. `replaced` names sections whose objects the load replaced.
    """

    run: str
    step: int
    load: StateDiff | None = None
    bound: tuple[Binding, ...] = ()
    built: TrainingState | None = None
    trajectory: TraceDiff | None = None
    origins: Origins | None = None
    measured: Measured = field(default_factory=dict)
    curve: Curve | None = None
    """How far all parameters, state tensors, gradients and buffers are apart at the steps; for the report alone."""
    replaced: frozenset[str] = frozenset()
    non_finite: NonFinite | None = None
    """What was NaN or infinite in both runs at the compared steps; None where no step was compared."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Entries of the average that only the load put into the memory of a live weight, with the name of that weight."""
    raised: str | None = None
    last_lines: tuple[str, ...] = ()
    """What a resumed script that failed said last."""
    raised_step: int | None = None
    """The step in which the resumed run raised; None where it did not get to a step."""
    other_step: int | None = None
    """The one step other than k after which everything that differs at the load had its loaded content."""
    breaches: tuple[Breach, ...] | None = None
    breached_run: str = ""
    saving: tuple[Saving, ...] | None = None
    noise: Difference | None = None
    """The first difference between two equal runs that no seed explains."""
    noisy_generators: tuple[str, ...] = ()
    """The generators that differ between equal runs, and are drawn from."""
    operations: tuple[str, ...] = ()
    """The operations of the run that torch has no deterministic implementation of."""
    chance: str = ""
    """Where it was seen that `noise` is chance, in words, if not in equal runs."""
    floor: Floor | None = None
    """How far equal runs part, where numeric differences were held against that."""
    rounding: tuple[str, ...] = ()
    """The parameters whose gradient is rounding noise in both runs."""
    whole: bool = True
    """Whether all that follows the load could be judged; noise and another device hide what a load breaks."""
    seeded: bool = True
    """Whether equal runs have equal generators, so that a generator can be held against what was saved."""
    commands: bool = False
    """Whether two commands were run, and not a target."""
    idle_generators: Mapping[str, int] = field(default_factory=dict)
    """Generators of a script that differ and reach nothing, with the first step that begins so; not in `trajectory`."""
    course: Course | None = None
    """Which steps a resumed script made; None for a target, which is told its steps."""
    interruption: Interruption | None = None
    """What the signal left that ended the run which was resumed."""

    @property
    def goes_on_exactly(self) -> bool:
        """Whether nothing that follows the load differs: what differs at the load is then without effect."""
        paired = self.trajectory is not None and not (self.trajectory.left_only or self.trajectory.right_only)
        shown = self.whole or not self.breaks_at_load
        return paired and shown and self.first is None and self.raised is None and not self.lost_steps

    @property
    def lost_steps(self) -> bool:
        """Whether steps were made again, left out, or lost to a signal, whatever they would have shown."""
        astray = self.course is not None and self.course.astray
        return astray or (self.interruption is not None and bool(self.interruption.lost))

    @property
    def maker(self) -> str:
        """Who builds what is trained, in words."""
        return "the script" if self.commands else "the factory"

    @property
    def origin(self) -> Mapping[str, Json]:
        """For the evidence of what was not loaded: whether the resumed run is where the first one began."""
        return {"from_start": True} if self.course is not None and self.course.from_start else {}

    @property
    def breaks_at_load(self) -> bool:
        """Whether something differs right after the load that no later step can make good."""
        if self.load is None:
            return False
        drawn = self.trajectory.drawn if self.trajectory is not None and self.seeded else frozenset()
        drawn -= self.idle_generators.keys()
        return bool(self.load.untied or self.load.tied or self.load.frozen or self.load.unfrozen) or any(
            one.section in LASTING or (one.section == "rng" and one.name in drawn) for one in self.load.entries
        )

    @property
    def first(self) -> Difference | None:
        """The first difference after the load."""
        return self.trajectory.first if self.trajectory is not None else None

    @property
    def has_scaler(self) -> bool:
        """Whether a gradient scaler was declared, which may skip updates."""
        return self.load is None or bool(self.load.left.sections.get("scaler"))

    def reaches(self, stage: str) -> bool:
        """Whether the first difference after the load is at this stage or a later one, or the run raised first."""
        if self.raised is not None and self.first is None:
            return True
        return self.first is not None and STAGE_ORDER[self.first.stage] >= STAGE_ORDER[stage]

    def persists(self, kind: str) -> bool:
        """Whether items of a kind differ in the steps that follow, or none could be recorded as the run raised."""
        if self.trajectory is None or not self.whole or (self.raised is not None and not self.trajectory.steps):
            return True
        return any(one.item.kind == kind for one in self.trajectory.differences)

    def loaded(self, section: str) -> tuple[EntryDifference, ...]:
        """The entries of a section that differ right after the load."""
        return self.load.of(section) if self.load is not None else ()

    def difference_of(self, entry: EntryDifference) -> TensorDifference | None:
        """The exact difference of an entry at the load, where it was measured."""
        optimizer = entry.optimizer if entry.optimizer is not None else -1
        return self.measured.get((self.step, Item(entry.section, entry.name, entry.key, optimizer)))
